"""What the ops library offers beside its ops: build information, tables, counters, controls.

C functions, called by ctypes: no file of the package is built for one version of Python.
"""

import ctypes
import enum
import json
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch

from thunderkittens._loader import LIBRARY

_library = ctypes.PyDLL(str(LIBRARY))  # none of its functions is worth letting go of Python's lock
for _name in (
    "build_info",
    "end_explaining",
    "argument_tables",
    "descriptions",
    "launch_counts",
    "kernels",
):
    getattr(_library, f"thunderkittens_{_name}").restype = ctypes.c_char_p
_library.thunderkittens_why_not.restype = ctypes.c_char_p
_library.thunderkittens_why_not.argtypes = [ctypes.c_char_p, ctypes.c_int]
_library.thunderkittens_takes_generic.argtypes = [ctypes.c_char_p, ctypes.c_int]


class Backend(enum.IntEnum):
    """`thunderkittens::backend` of csrc/binding/backend.h."""

    auto = 0
    torch = 1
    simulator = 2
    simulator_race = 3
    auto_generic = 4
    simulator_generic = 5
    simulator_race_generic = 6


_BACKENDS = tuple(Backend)
_Chosen = Literal["cuda", "torch", "simulator"]


def _text(function: str) -> str:
    """What a function without arguments says."""
    said: bytes = getattr(_library, f"thunderkittens_{function}")()
    return said.decode()


def _read(function: str) -> Any:
    """The same, taken from JSON."""
    return json.loads(_text(function))


def build_info() -> str:
    """What the library was built from, as JSON."""
    return _text("build_info")


def backend() -> Backend:
    """This thread's backend."""
    chosen: int = _library.thunderkittens_backend()
    return _BACKENDS[chosen]


def set_backend(choice: Backend) -> None:
    """Sets this thread's backend."""
    _library.thunderkittens_set_backend(Backend(choice).value)


def explain(function: Callable[[], object]) -> tuple[str, _Chosen, str, list[str]] | None:
    """Calls a function while its ops only decide.

    Returns:
        Op, backend, reason and notes; None when no op decided anything.
    """
    _library.thunderkittens_begin_explaining()
    try:
        function()
    finally:
        answer = _read("end_explaining")
    return None if answer is None else tuple(answer)


def argument_tables() -> list[dict[str, Any]]:
    """What each op checks its arguments by; tests of refused calls are generated from it."""
    tables: list[dict[str, Any]] = _read("argument_tables")
    return tables


def descriptions() -> dict[str, tuple[dict[str, str], list[tuple[str, str, str]]]]:
    """Shapes, by names of dimensions, of the arguments and results of each op in torch.

    Returns:
        For each op the shapes of its arguments, "" of those that are no tensors of rows or a batch,
        and of each result its name, the argument that it is like, and its shape.
    """
    shapes: dict[str, tuple[dict[str, str], list[tuple[str, str, str]]]] = _read("descriptions")
    return shapes


def launch_counts() -> dict[str, int]:
    """Launches so far, by entry of the launcher table."""
    counts: dict[str, int] = _read("launch_counts")
    return counts


def kernels() -> list[dict[str, Any]]:
    """For each op: its entry in the launcher table and the architectures that it is built for."""
    entries: list[dict[str, Any]] = _read("kernels")
    return entries


def why_not(op: str, device: int) -> str | None:
    """Why the op has no kernel on that CUDA device; None when it has one."""
    reason: bytes | None = _library.thunderkittens_why_not(op.encode(), device)
    if reason is None:
        raise KeyError(op)
    return reason.decode() or None


def takes_generic(op: str, device: int) -> bool:
    """Whether the op's kernel on that CUDA device is the generic one of two."""
    return bool(_library.thunderkittens_takes_generic(op.encode(), device))


def forget_warnings() -> None:
    """Lets every fallback warn once more."""
    _library.thunderkittens_forget_warnings()


def _warn(sentence: str) -> None:
    """A fallback's warning, attributed to the caller of the public function."""
    warnings.warn(sentence, stacklevel=4)  # above this, torch.ops and the public function


# The library calls it as an op: see warn_in_python of csrc/binding/c_api.cpp.
_op = torch.library.Library("thunderkittens_python", "FRAGMENT")
_op.define("warn(str sentence) -> ()")
_op.impl("warn", _warn, "CompositeImplicitAutograd")
_library.thunderkittens_warn_in_python()


def _level() -> int:
    """Of the transform of torch.func that a call has reached: see csrc/binding/vmap.h."""
    level: int = torch._C._functorch.current_level()
    return level


_level_reader = ctypes.CFUNCTYPE(ctypes.c_int64)(_level)  # kept here: the library calls it
_library.thunderkittens_set_level_reader(_level_reader)
