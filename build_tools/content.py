"""Hashes of files, and names for them that are the same in every source tree of one machine."""

import contextlib
import hashlib
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from build_tools import settings

PACKAGES = "{packages}"  # of the interpreter, which may have an environment in each tree
# Compilers read these beside their command line.
VARIABLES = (
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "LIBRARY_PATH",
    "NVCC_APPEND_FLAGS",
    "NVCC_PREPEND_FLAGS",
)
_hashes: dict[tuple, str] = {}


def of_bytes(data: bytes) -> str:
    """Returns a hash of bytes."""
    return hashlib.sha256(data).hexdigest()


def of_words(*words: str) -> str:
    """Returns a hash of texts, none of which has a zero."""
    return of_bytes("\0".join(words).encode())


def of_file(path: str | Path) -> str:
    """Returns a hash of a file's content, which is read once while the file stays as it is.

    Raises:
        OSError: There is no such file.
    """
    status = os.stat(path)
    times = (status.st_mtime_ns, status.st_ctime_ns)
    key = (os.fspath(path), status.st_dev, status.st_ino, status.st_size, *times)
    if key not in _hashes:
        _hashes[key] = of_bytes(Path(path).read_bytes())
    return _hashes[key]


def names(root: Path) -> "Names":
    """Returns the names of the folders of a source tree, as they are now."""
    own = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path)
    packages = [path for path in own if path.endswith(("/site-packages", "/dist-packages"))]
    return Names(str(root), str(settings.build_dir()), tuple(dict.fromkeys(packages)))


@cache
class Names:
    """Names for paths and command lines, in which folders that differ by tree have one name."""

    def __init__(self, root: str, build: str, packages: tuple[str, ...]) -> None:
        """Calls a source tree ".", its build folder "{build}", folders of packages "{packages}"."""
        named = {path: PACKAGES for path in packages} | {root: ".", build: "{build}"}
        self._named = dict(sorted(named.items(), key=lambda item: -len(item[0])))  # innermost first
        self._pattern = re.compile(f"({'|'.join(map(re.escape, self._named))})(?![^/=:,])")

    def of(self, text: str) -> str:
        """Returns a text with the folders' names in place of the folders."""
        return self._pattern.sub(lambda found: self._named[found[1]], text)

    def path(self, name: str) -> str:
        """Returns the path that has a name."""
        for folder, known in self._named.items():
            path = folder + name.removeprefix(known)
            if name.startswith(f"{known}/") and (known != PACKAGES or os.path.exists(path)):
                return path
        return name

    def command(self, words: Iterable[str]) -> list[str]:
        """Returns a command line with compilers by their versions and folders by their names.

        Run paths stay as they are, for they are written into what is linked.
        """
        found: list[str] = []
        last = ""
        for word in words:
            if not found or last == "-ccbin":
                found.append(version(word))
            else:
                found.append(word if word.startswith("-Wl,-rpath,") else self.of(word))
            last = word
        return found


@cache
def version(compiler: str) -> str:
    """Returns all that a compiler says of its version, which distributions add to."""
    try:
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return compiler
    return done.stdout.replace(compiler, "") or compiler


def processor() -> str:
    """Returns the processor's name, for what depends on its speed."""
    with contextlib.suppress(OSError):
        found = re.search(
            r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE
        )
        return found[1] if found else platform.machine()
    return platform.machine()


def machine() -> str:
    """Returns what an output depends on beside its command: processor, C library, environment."""
    values = (f"{name}={os.environ[name]}" for name in VARIABLES if os.environ.get(name))
    return "\n".join((platform.machine(), *platform.libc_ver(), *values))
