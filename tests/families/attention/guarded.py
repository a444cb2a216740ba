"""Calls between guards: check_memory, which in the simulator costs one run instead of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from thunderkittens import _C
from thunderkittens.testing import Poisoned, check_memory, memory


def runs() -> int:
    """How often `run` calls, by the backend in force."""
    return 1 if _C.backend().name.startswith("simulator") else 2


def run(
    function: Callable[..., Sequence[Tensor | None]], *tensors: Tensor | None
) -> list[Tensor | None]:
    """What a function gives, which reads and writes its tensors alone.

    The simulator reports an access to the guards itself: another run with other neighbours would
    have nothing left to show. Of the two kinds of neighbours a test has one, by its seed.
    """
    if runs() > 1:
        return check_memory(function, *tensors)
    neighbours = memory.NEIGHBOURS[torch.initial_seed() % 2]
    with Poisoned(neighbours) as poisoned:
        return list(function(*(None if t is None else poisoned.guard(t) for t in tensors)))
