"""Finds and loads the libraries, or says in one sentence why they cannot be loaded."""

import ctypes
import itertools
import json
import re
import shlex
import struct
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent
KERNELS = PACKAGE / "lib" / "libthunderkittens_kernels.so"
LIBRARY = PACKAGE / "lib" / "libthunderkittens.so"
SIMULATOR = PACKAGE / "lib" / "_simulator.so"
SIMULATOR_RACE = PACKAGE / "lib" / "_simulator_race.so"
PYTHON = shlex.quote(sys.executable)
REBUILD_IN_PLACE = f"{PYTHON} -m build_tools ops"

problem: str | None = None
"""Why `load` did not load the libraries; None when it did."""


def pip_install() -> str:
    """The command that installs into this environment: uv's, where there is no pip.

    To ask for pip is not for every import: setuptools takes it for pip's start, and then fails when
    it is imported itself.
    """
    has_pip = find_spec("pip") is not None
    return f"{PYTHON} -m pip install" if has_pip else f"uv pip install --python {PYTHON}"


def rebuild() -> str:
    """The command, in the source folder: with the torch that is there.

    And with pip's own setuptools, for the environment's may be too old.
    """
    return f"{pip_install()} --force-reinstall --no-deps ."


def load() -> bool:
    """Loads the ops into torch.

    Returns:
        True; False when they cannot be loaded but the program is `python -m thunderkittens`, which
        is there to say why.

    Raises:
        ImportError: They cannot be loaded; the message names the command that helps.
    """
    global problem
    cause: Exception | None = None
    problem = why_not()
    if problem is None:
        import torch

        try:
            torch.ops.load_library(str(LIBRARY))
        except (OSError, RuntimeError) as error:  # such as a CUDA runtime that is gone
            problem, cause = f"the ops library cannot be loaded ({error}); {_remedy()}", error
        else:
            problem = _why_not_together()
    if problem is None:
        return True
    if _is_the_program():
        return False
    raise ImportError(f"thunderkittens: {problem}") from cause


def why_not() -> str | None:
    """Why the libraries cannot be loaded, found out without loading them; None when they can."""
    for library, what in ((LIBRARY, "the ops library"), (KERNELS, "the kernels' library")):
        if not library.is_file():
            return f"{what} {library} is missing; {_remedy()}"
    built_with = built_for()
    if not built_with:
        return f"the ops library {LIBRARY} is damaged; {_remedy()}"
    if _is_cut_off(KERNELS):
        return f"the kernels' library {KERNELS} is damaged; {_remedy()}"
    built = _minor(built_with.get("torch", ""))
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":  # a broken one says what it lacks
            raise
        return f"PyTorch is not installed; run {_torch_command(built)}"
    running = _minor(torch.__version__)
    if built != running:
        what = f"built for torch {built}, but torch {running} is running"
        build = f"{_remedy()} to build for {running}"
        return f"{what}; {build}, or {_torch_command(built)} to go to {built}"
    return None


def _why_not_together() -> str | None:
    """Why the libraries that have been loaded are not of one build; None when they are.

    What goes between them are structs of the headers, which another build may have changed.
    """
    try:
        ask = ctypes.PyDLL(str(LIBRARY)).thunderkittens_why_not_kernels
    except AttributeError:
        return f"the ops library {LIBRARY} is older than the package; {_remedy()}"
    ask.restype = ctypes.c_char_p
    reason: bytes | None = ask()
    return None if reason is None else f"{reason.decode()}; {_remedy()}"


def _torch_command(minor: str) -> str:
    return f"`{pip_install()} 'torch=={minor}.*'`"


def built_for() -> dict[str, Any]:
    """What the library was built from, read from the file: loading it needs the right torch.

    Empty when the file is damaged.
    """
    found = re.search(rb'\{\s*"version": .*?\}\x00', LIBRARY.read_bytes(), re.DOTALL)
    if not found or _is_cut_off(LIBRARY):
        return {}
    try:
        build: dict[str, Any] = json.loads(found[0][:-1])
        return build
    except ValueError:
        return {}


def _is_cut_off(library: Path) -> bool:
    """Whether the end of an ELF file is missing; loading one kills the process."""
    with library.open("rb") as file:
        header = file.read(64)
    if len(header) < 64:
        return True
    (table,) = struct.unpack_from("<Q", header, 0x28)  # e_shoff: the sections' headers come last
    size, count = struct.unpack_from("<HH", header, 0x3A)
    return bool(table + size * count > library.stat().st_size)


def include_dir() -> str:
    """The folder to compile with (`-I`) for `#include <kittens.cuh>`.

    Example:
        >>> import pathlib, thunderkittens
        >>> (pathlib.Path(thunderkittens.include_dir()) / "kittens.cuh").is_file()
        True
    """
    installed = PACKAGE / "include"
    return str(installed if installed.is_dir() else PACKAGE.parent / "csrc" / "include")


def _remedy() -> str:
    """What to do to have the libraries for this torch."""
    source = PACKAGE.parent
    if (source / "build_tools" / "ops.py").is_file():  # used in place, or installed editable
        return f"run `cd {shlex.quote(str(source))} && {REBUILD_IN_PLACE}`"
    return f"in the source folder, run `{rebuild()}`"


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def _is_the_program() -> bool:
    """Whether this is `python -m thunderkittens`, which imports the package before it runs."""
    words = getattr(sys, "orig_argv", [])
    return any(pair == ("-m", "thunderkittens") for pair in itertools.pairwise(words))
