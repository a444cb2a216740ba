"""The choice of backend, a property of the calling thread that the ops read in C++."""

import contextlib
import ctypes
import functools
import os

from thunderkittens import _C
from thunderkittens._loader import SIMULATOR

POLICIES = ("eager", "lazy", "random")


class backend(contextlib.ContextDecorator):
    """Chooses, for this thread and for as long as the context lasts, who computes the ops.

    A backward runs on the backend of its forward.

    Args:
        name: "auto": our kernels for CUDA tensors that they cover, torch for the rest. "torch":
            torch's own ops always. "simulator": our kernels, run on the CPU lane by lane (slow;
            CPU tensors only; built by `make test`).
        policy: Simulator only: when asynchronous work completes, and in which order threads run:
            "eager" (at once, ascending), "lazy" (as late as allowed, descending) or "random" (drawn
            from `seed`). None, with `threads` None too, leaves both as they are.
        seed: Simulator only: of "random".
        threads: Simulator only: the operating system's threads over which blocks are spread; None
            for as many as there are cores.

    Raises:
        ValueError: The name or an option is not one of those above.
        RuntimeError: The simulator is not built.

    Example:
        >>> import torch, thunderkittens
        >>> with thunderkittens.backend("torch"):
        ...     y = thunderkittens.layer_norm(torch.ones(2, 8))
    """

    def __init__(
        self,
        name: str,
        *,
        policy: str | None = None,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        if name not in _C.Backend.__members__:
            expected = ", ".join(map(repr, _C.Backend.__members__))
            raise ValueError(f"backend: name must be one of {expected}, got {name!r}")
        if policy not in (None, *POLICIES):
            expected = ", ".join(POLICIES)
            raise ValueError(f"backend: policy must be one of {expected}, got {policy!r}")
        if threads is not None and threads < 1:
            raise ValueError(f"backend: threads must be at least 1, got {threads}")
        self.name = name
        self._options: str | None = None  # None: leave the simulator's as they are
        if policy or threads:
            order = f"random:{seed}" if policy == "random" else policy or "eager"
            self._options = f"{order},threads={threads}" if threads else order
        self._previous: list[tuple[_C.Backend, str]] = []

    def __enter__(self) -> "backend":
        if self.name == "simulator":
            _simulator()
        previous = (_C.backend(), _options)
        if self.name == "simulator" and self._options is not None:
            _configure_simulator(self._options)
        _C.set_backend(_C.Backend.__members__[self.name])
        self._previous.append(previous)
        return self

    def __exit__(self, *error: object) -> None:
        previous, options = self._previous.pop()
        _C.set_backend(previous)
        if options != _options:
            _configure_simulator(options)


# Of the simulator, which has one set of them for the whole process; its own environment variable
# says what they are at first.
_options = os.environ.get("KITTENS_SIM") or "eager"


def _configure_simulator(options: str) -> None:
    global _options
    library = _simulator()
    if library.kittens_sim_configure(options.encode()) != 0:
        raise RuntimeError(f"simulator: {library.kittens_sim_last_error().decode()}")
    _options = options


@functools.cache
def _simulator() -> ctypes.CDLL:
    """Loads the simulator, whose kernels enter themselves beside the CUDA ones."""
    if not SIMULATOR.is_file():
        raise RuntimeError(
            f"backend: the simulator is not built ({SIMULATOR} is missing); in the source folder, "
            "run `python -m build_tools simulator`"
        )
    library = ctypes.CDLL(str(SIMULATOR))
    library.kittens_sim_configure.argtypes = [ctypes.c_char_p]
    library.kittens_sim_last_error.restype = ctypes.c_char_p
    return library
