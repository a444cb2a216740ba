"""The choice of backend, a property of the calling thread that the ops read in C++."""

import contextlib
import copy
import ctypes
import functools
import os
import threading
from typing import Literal

from thunderkittens import _C
from thunderkittens._loader import SIMULATOR, SIMULATOR_RACE

NAMES = ("auto", "torch", "simulator")
POLICIES = ("eager", "lazy", "random")
LIMITS = {"seed": (0, 2**64 - 1), "threads": (1, 2**31 - 1), "block": (0, 2**63 - 1)}
KEPT_OPTIONS = ("spin=", "trace=", "block=", "facts=")  # of a thread, under another policy


class backend(contextlib.ContextDecorator):
    """Chooses, for this thread and for as long as the context lasts, who computes the ops.

    In eager code a backward runs on the backend of its forward, also outside of the context. Under
    `torch.compile` both run on the backend of the thread that executes them, at that time: for CPU
    tensors the caller's, for a backward of CUDA tensors that of autograd's own thread ("auto").
    Enter the context outside of compiled code, around the calls of it.

    Args:
        name: "auto": our kernels for CUDA tensors that they cover, torch for the rest. "torch":
            torch's own ops always. "simulator": our kernels, run on the CPU lane by lane (slow;
            CPU tensors only; built by `make test`).
        policy: Simulator only: when asynchronous work completes, and in which order threads run:
            "eager" (at once, ascending), "lazy" (as late as allowed, descending) or "random" (drawn
            from `seed`). None, with `threads` None too, leaves both as this thread has them.
        seed: Simulator only: of "random", which alone takes one; 0 to 2⁶⁴ − 1, None for 0.
        threads: Simulator only: the operating system's threads over which blocks are spread; None
            for as many as there are cores.
        trace: Simulator only: a file for the timeline of one block of each launch, to look at in
            chrome://tracing or ui.perfetto.dev. None leaves this thread's as it is.
        block: Simulator only: which block `trace` is of, as x + grid.x · (y + grid.y · z); None
            for 0. Needs `trace`.
        facts: Simulator only: a file for what each launch executes: instructions, bytes, bank
            conflicts. None leaves this thread's as it is.
        race: Simulator only: whether accesses to shared memory that nothing orders are errors too,
            under every policy; several times slower.
        kernel: "generic": of an op that has two kernels, a specialised one for one architecture and
            a generic one for all of them, the generic one; an op without one is torch's. None: the
            specialised one where it runs. Not for "torch".

    Raises:
        ValueError: The name or an option is not one of those above, or is not for that name.
        RuntimeError: The simulator is not built.

    Example:
        >>> import torch, thunderkittens
        >>> with thunderkittens.backend("torch"):
        ...     y = thunderkittens.layer_norm(torch.ones(2, 8))
    """

    def __init__(
        self,
        name: Literal["auto", "torch", "simulator"],
        *,
        policy: Literal["eager", "lazy", "random"] | None = None,
        seed: int | None = None,
        threads: int | None = None,
        race: bool = False,
        trace: str | os.PathLike[str] | None = None,
        block: int | None = None,
        facts: str | os.PathLike[str] | None = None,
        kernel: Literal["generic"] | None = None,
    ) -> None:
        _check_kernel(name, kernel)
        files = {"trace": trace, "block": block, "facts": facts}
        _check_options(name, {"policy": policy, "seed": seed, "threads": threads, **files}, race)
        self.name = name
        self.race = race
        self.kernel = kernel
        self._order: str | None = None  # None: leave the simulator's as it is
        if policy is not None or threads is not None:
            order = f"random:{seed or 0}" if policy == "random" else policy or "eager"
            self._order = order if threads is None else f"{order},threads={threads}"
        if trace is not None:
            files["block"] = block or 0
        self._files = [f"{key}={value}" for key, value in files.items() if value is not None]
        self._entered = _Entered()

    def __enter__(self) -> "backend":
        previous, options = _C.backend(), None
        if self.name == "simulator":
            library = _simulator(self.race)
            if self._order is not None or self._files or self.race:
                options = _options(library)
                _configure(library, self._changed(options))
        words = [self.name, "race" if self.race else None, self.kernel]
        _C.set_backend(_C.Backend.__members__["_".join(filter(None, words))])
        self._entered.previous.append((previous, options))
        return self

    def __exit__(self, *error: object) -> None:
        previous, options = self._entered.previous.pop()
        _C.set_backend(previous)
        if options is not None:
            _configure(_simulator(self.race), options)

    def _changed(self, options: str) -> str:
        """This thread's options with ours in their place; of two of a kind, the last counts."""
        if self._order is not None:
            kept = [part for part in options.split(",") if part.startswith(KEPT_OPTIONS)]
            options = ",".join([self._order, *kept])
        return ",".join([options, *self._files, *(["race"] if self.race else [])])

    def _recreate_cm(self) -> "backend":
        """As a decorator: what contextlib enters for each call."""
        again = copy.copy(self)
        again._entered = _Entered()
        return again


class _Entered(threading.local):
    """What each thread's entries of one context object found, to be put back in reverse."""

    def __init__(self) -> None:
        self.previous: list[tuple[_C.Backend, str | None]] = []


def _check_options(name: object, options: dict[str, object], race: object) -> None:
    def refuse(what: str, expected: str, got: object) -> None:
        raise ValueError(f"backend: {what} must be {expected}, got {got!r}")

    def is_integer(value: object, least: int, most: int) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    def is_path(value: object) -> bool:  # in a list that commas separate
        return isinstance(value, str | os.PathLike) and bool(str(value)) and "," not in str(value)

    if not isinstance(name, str) or name not in NAMES:
        refuse("name", f"one of {', '.join(map(repr, NAMES))}", name)
    policy = options["policy"]
    if policy is not None and (not isinstance(policy, str) or policy not in POLICIES):
        refuse("policy", f"one of {', '.join(POLICIES)}", policy)
    for what, (least, most) in LIMITS.items():
        if options[what] is not None and not is_integer(options[what], least, most):
            refuse(what, f"an integer from {least} to {most}", options[what])
    for what in ("trace", "facts"):
        if options[what] is not None and not is_path(options[what]):
            refuse(what, "a path without a comma", options[what])
    if not isinstance(race, bool):
        refuse("race", "True or False", race)
    if name != "simulator":
        if race:
            refuse("race", f"False for {name!r}, being an option of 'simulator'", race)
        for what, value in options.items():
            if value is not None:
                refuse(what, f"None for {name!r}, being an option of 'simulator'", value)
    if options["seed"] is not None and policy != "random":
        refuse("seed", "None unless policy is 'random'", options["seed"])
    if options["block"] is not None and options["trace"] is None:
        refuse("block", "None without trace", options["block"])


def _check_kernel(name: object, kernel: object) -> None:
    if kernel is not None and (not isinstance(kernel, str) or kernel != "generic"):
        raise ValueError(f"backend: kernel must be None or 'generic', got {kernel!r}")
    if kernel is not None and name == "torch":
        raise ValueError(f"backend: kernel must be None for 'torch', got {kernel!r}")


def _configure(library: ctypes.CDLL, options: str) -> None:
    """Sets this thread's options."""
    if library.kittens_sim_configure(options.encode()) != 0:
        raise RuntimeError(f"simulator: {library.kittens_sim_last_error().decode()}")


def _options(library: ctypes.CDLL) -> str:
    """This thread's options: those of the environment's KITTENS_SIM until they are set."""
    options = library.kittens_sim_options()
    if options is None:
        raise RuntimeError(f"simulator: {library.kittens_sim_last_error().decode()}")
    return str(options.decode())


_loaded: list[ctypes.CDLL] = []


def loaded_simulators() -> list[ctypes.CDLL]:
    """The simulator's libraries that something has loaded."""
    return list(_loaded)


@functools.cache
def _simulator(race: bool) -> ctypes.CDLL:
    """Loads the simulator, whose kernels enter themselves beside the CUDA ones."""
    path = SIMULATOR_RACE if race else SIMULATOR
    if not path.is_file():
        raise RuntimeError(
            f"backend: the simulator is not built ({path} is missing); in the source folder, "
            "run `python -m build_tools simulator`"
        )
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise RuntimeError(
            f"backend: the simulator cannot be loaded ({error}); in the source folder, run "
            "`python -m build_tools simulator`"
        ) from error
    library.kittens_sim_configure.argtypes = [ctypes.c_char_p]
    library.kittens_sim_options.restype = ctypes.c_char_p
    library.kittens_sim_last_error.restype = ctypes.c_char_p
    library.kittens_sim_guard.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    library.kittens_sim_guard.restype = None
    library.kittens_sim_release_guards.argtypes = [ctypes.c_void_p]
    library.kittens_sim_release_guards.restype = None
    _loaded.append(library)
    return library
