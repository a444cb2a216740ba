"""Results of long runs that always end the same, kept like objects by what they depend on.

A result is kept in this tree and, for other trees, in the cache. Where CI is set, only those count
that this run of the tests has made: there, everything is run once.
"""

import contextlib
import json
import os
import time
from pathlib import Path

from build_tools import cache, content, settings

SINCE = "THUNDERKITTENS_RESULTS_SINCE"  # when this run of the tests has begun, for its processes
_begun = time.time()


def read(key: str) -> dict | None:
    """Returns what was kept under a hash of all that it depends on, or None."""
    with contextlib.suppress(OSError, ValueError):
        return _counting(json.loads(_path(key).read_text()))
    found = cache.read("results", key)
    with contextlib.suppress(ValueError):
        return _counting(json.loads(found[0])) if found else None
    return None


def write(key: str, result: dict) -> None:
    """Keeps a result, of texts and numbers."""
    text = json.dumps({"time": time.time(), "result": result})
    path = _path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}.{content.of_words(text)[:8]}")
    scratch.write_text(text)
    scratch.replace(path)
    cache.write("results", key, [text.encode()])


def since() -> float:
    """Returns the time before which no result counts."""
    if os.environ.get("CI", "").lower() not in ("1", "true"):
        return 0.0
    return float(os.environ.get(SINCE) or _begun)


def _counting(record: dict) -> dict | None:
    return record["result"] if record["time"] >= since() else None


def _path(key: str) -> Path:
    return settings.build_dir() / "results" / key[:2] / f"{key[2:20]}.json"
