"""The build backend that pip and other front ends call (PEP 517 and PEP 660).

It is setuptools' own, but needs nothing installed for the build: a kernel library has to be
built against the PyTorch that it will be imported beside, so that one is looked for where an
isolated build environment hides it: in the interpreter that asked for the build.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from build_tools import progress, toolchain
from build_tools.settings import BuildError

MINIMUM_SETUPTOOLS = (70, 1)  # the first that makes wheels by itself
SETUPTOOLS = "setuptools>=70.1,<82"
PROBE = (
    "import importlib.util, json, sys;"
    "print(json.dumps([sys.version_info[:2], importlib.util.find_spec('torch') is not None,"
    " sys.executable, sys.path]))"
)


def get_requires_for_build_wheel(config_settings: dict | None = None) -> list[str]:
    """Returns what to download for the build: nothing, unless setuptools is missing or too old."""
    with _installed_torch():
        return [] if _has_setuptools() else [SETUPTOOLS]


def get_requires_for_build_sdist(config_settings: dict | None = None) -> list[str]:
    """Returns what to download for a source archive: see get_requires_for_build_wheel."""
    _show_installed_packages()
    return [] if _has_setuptools() else [SETUPTOOLS]


get_requires_for_build_editable = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(folder: str, config_settings: dict | None = None) -> str:
    """Writes the wheel's metadata into a folder and returns its name there."""
    with _installed_torch():
        return _setuptools().prepare_metadata_for_build_wheel(folder, config_settings)


def prepare_metadata_for_build_editable(folder: str, config_settings: dict | None = None) -> str:
    """Writes the editable wheel's metadata into a folder and returns its name there."""
    with _installed_torch():
        return _setuptools().prepare_metadata_for_build_editable(folder, config_settings)


def build_wheel(
    folder: str, config_settings: dict | None = None, metadata: str | None = None
) -> str:
    """Builds a wheel into a folder and returns its name there."""
    with _installed_torch(), _seen():
        return _setuptools().build_wheel(folder, config_settings, metadata)


def build_editable(
    folder: str, config_settings: dict | None = None, metadata: str | None = None
) -> str:
    """Builds in place, and a wheel that points there; returns the wheel's name."""
    with _installed_torch(), _seen():
        return _setuptools().build_editable(folder, config_settings, metadata)


def build_sdist(folder: str, config_settings: dict | None = None) -> str:
    """Writes a source archive into a folder and returns its name there."""
    _show_installed_packages()
    return _setuptools().build_sdist(folder, config_settings)


@contextlib.contextmanager
def _installed_torch() -> Iterator[None]:
    """Makes the installed PyTorch importable; an error is one sentence, not a traceback."""
    try:
        _show_installed_packages()
        toolchain.find_torch()
        yield
    except BuildError as error:
        sys.exit(f"error: {error}")


@contextlib.contextmanager
def _seen() -> Iterator[None]:
    """Shows the progress to whoever sits at the terminal: pip and others hide it."""
    progress.show_on_terminal(front_end=_parent()[0])
    try:
        yield
    finally:
        progress.show_on_terminal(False)


def _show_installed_packages() -> None:
    """Appends the packages of the interpreter that asked for the build to the search path."""
    if importlib.util.find_spec("torch") is not None:
        return
    found_ones = []
    for command, environment in _interpreters():
        found = _probe(command, environment)
        if found is None:
            continue
        has_torch, interpreter, paths = found
        if has_torch:
            toolchain.interpreter = interpreter
            sys.path += [path for path in paths if path and path not in sys.path]
            return
        found_ones.append(interpreter)
    # For messages the front end's: our own, the first, may be the build's, which is soon removed.
    toolchain.interpreter = [sys.executable, *found_ones[:2]][-1]


def _probe(command: str, environment: dict[str, str]) -> tuple[bool, str, list[str]] | None:
    """Returns whether an interpreter has torch, its path and its search path.

    None where it is of another version of Python, or none at all.
    """
    hidden = ("PYTHONHOME", "PYTHONNOUSERSITE")
    environment = {key: value for key, value in environment.items() if key not in hidden}
    try:
        done = subprocess.run(
            [command, "-c", PROBE], env=environment, cwd="/", capture_output=True, timeout=60
        )
        version, has_torch, executable, paths = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    usable = tuple(version) == sys.version_info[:2]
    return (has_torch, executable, paths) if usable else None


def _interpreters() -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the interpreters that may have asked for this build, each with its environment.

    pip hides its own packages by PYTHONPATH, so the same interpreter without that shows them.
    Other front ends make a virtual environment: there, the parent process tells: the program that
    it is, the interpreter that it was told to use (`--python`), or its virtual environment, of
    which uv takes the one in `.venv`, too.
    """
    yield sys.executable, {key: val for key, val in os.environ.items() if key != "PYTHONPATH"}
    words, variables = _parent()
    if not words:
        return
    here = _parent_folder()
    named = [words[0]]
    for word, following in zip(words[1:], [*words[2:], ""], strict=True):
        if word in ("--python", "-p"):
            named.append(following)
        elif word.startswith("--python="):
            named.append(word.removeprefix("--python="))
    prefixes = [variables[key] for key in ("VIRTUAL_ENV", "CONDA_PREFIX") if variables.get(key)]
    folders = [Path(prefix) for prefix in prefixes] + [up / ".venv" for up in (here, *here.parents)]
    search = [*(str(folder / "bin") for folder in folders), variables.get("PATH", os.defpath)]
    for name in (*named, "python3", "python"):
        path, inside = Path(here, name), Path(here, name, "bin", "python")
        found = str(inside) if inside.is_file() else str(path) if "/" in name else None
        found = found or shutil.which(name, path=os.pathsep.join(search))
        if found:
            yield found, variables


def _parent() -> tuple[list[str], dict[str, str]]:
    """Returns the command line and the environment of the front end; empty where none is seen."""
    process = Path(f"/proc/{os.getppid()}")
    try:
        words = (process / "cmdline").read_text(errors="replace").rstrip("\0").split("\0")
        entries = (process / "environ").read_text(errors="replace").split("\0")
    except OSError:
        return [], {}
    return words, dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _parent_folder() -> Path:
    """Returns the folder in which the front end was called."""
    try:
        return Path(os.readlink(f"/proc/{os.getppid()}/cwd"))
    except OSError:
        return Path.cwd()


def _has_setuptools() -> bool:
    try:
        version = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        return False
    return toolchain.version_tuple(version) >= MINIMUM_SETUPTOOLS


def _setuptools():
    if not _has_setuptools():
        try:
            found = importlib.metadata.version("setuptools")
        except importlib.metadata.PackageNotFoundError:
            found = "none"
        sys.exit(
            f"error: setuptools: found {found}, needed ≥ {toolchain.dotted(MINIMUM_SETUPTOOLS)}; "
            f"install it with `{toolchain.pip()} '{SETUPTOOLS}'`, or leave out --no-build-isolation"
        )
    from setuptools import build_meta

    return build_meta
