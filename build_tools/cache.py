"""What is kept between source trees: objects and results, in a folder of the user's.

An entry's name is a hash of all that it depends on, its first line a hash of what it holds: one
that is damaged counts as none. The longest unused go first where the folder would pass its limit.
Nothing depends on it: what cannot be read or written is made again, or not kept.

The folder is `$XDG_CACHE_HOME/thunderkittens`, else `~/.cache/thunderkittens`;
`python -m build_tools cache` says how full it is, `... cache --clear` empties it.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from build_tools import settings

FORMAT = "2"  # another one never reads what this one has written
SCRATCH = ".scratch"
SCRATCH_SECONDS = 24 * 3600  # what a build that was killed has left behind


def folder() -> Path | None:
    """Returns the folder, which need not be there; None where nothing is to be kept."""
    if not settings.cache_bytes():
        return None
    home = os.environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(home):  # as the specification says of relative paths, too
        home = os.path.expanduser("~/.cache")
    return Path(home, "thunderkittens", FORMAT) if os.path.isabs(home) else None


def read(kind: str, key: str) -> list[bytes] | None:
    """Returns the parts of an entry, or None if there is no sound one.

    Args:
        kind: What it is, as a folder: "objects", "sources" or "results".
        key: The hash of all that it depends on.
    """
    path = _path(kind, key)
    if path is None:
        return None
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        record = json.loads(head)
        sizes = record["sizes"]
        if len(body) == sum(sizes) and hashlib.sha256(body).hexdigest() == record["sha256"]:
            os.utime(path)  # it is used: others go first
            ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
            return [body[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError):
        pass
    with contextlib.suppress(OSError):
        path.unlink()
    return None


def write(kind: str, key: str, parts: list[bytes]) -> None:
    """Keeps an entry, all of it or nothing; where it cannot, quietly not."""
    path = _path(kind, key)
    if path is None:
        return
    body = b"".join(parts)
    record = {"sha256": hashlib.sha256(body).hexdigest(), "sizes": [len(part) for part in parts]}
    scratch = path.with_name(f"{path.name}.{uuid.uuid4().hex}{SCRATCH}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch.write_bytes(json.dumps(record).encode() + b"\n" + body)
        scratch.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            scratch.unlink()


def trim() -> None:
    """Removes the longest unused entries until the others are within the limit."""
    entries = sorted(_entries(), key=lambda entry: entry[1].st_mtime)
    excess = sum(status.st_size for _, status in entries) - settings.cache_bytes()
    for path, status in entries:
        left_behind = path.suffix == SCRATCH and status.st_mtime < time.time() - SCRATCH_SECONDS
        if excess <= 0 and not left_behind:
            continue
        with contextlib.suppress(OSError):
            path.unlink()
            excess -= status.st_size


def clear() -> None:
    """Removes everything, of other formats too."""
    found = folder()
    if found is not None:
        shutil.rmtree(found.parent, ignore_errors=True)


def describe() -> str:
    """Returns one line: where it is, how many entries of how many bytes, and the limit."""
    found = folder()
    if found is None:
        return "Nothing is kept between source trees: THUNDERKITTENS_CACHE_GIB=0, or no home folder"
    sizes = [status.st_size for _, status in _entries()]
    limit = settings.cache_bytes() / 2**30
    return f"{found.parent}: {len(sizes)} entries, {sum(sizes) / 2**30:.2f} of {limit:g} GiB"


def _path(kind: str, key: str) -> Path | None:
    found = folder()
    return found / kind / key[:2] / key[2:] if found else None


def _entries() -> Iterator[tuple[Path, os.stat_result]]:
    found = folder()
    for path in found.rglob("*") if found else ():
        with contextlib.suppress(OSError):
            if path.is_file():
                yield path, path.stat()
