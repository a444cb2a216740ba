"""Which kind of kernel an op takes that has two."""

import contextlib

import thunderkittens
from thunderkittens import _C


def taking(generic: bool) -> contextlib.AbstractContextManager:
    """Puts the backend in force that is; with generic kernels where they are asked for."""
    if not generic:
        return contextlib.nullcontext()
    now = _C.backend().name
    world = "simulator" if "simulator" in now else "auto"
    return thunderkittens.backend(world, kernel="generic", race="race" in now)
