"""Packed sequences of mamba2 are apart, by the backend in force."""

from collections.abc import Callable

from torch import Tensor

from tests.families.mamba2 import cases
from tests.families.mamba2.cases import Case
from tests.tools import packed_apart

# Of several chunks, one token, none, several chunks again, and one. SPOILED: one in front of all
# others, and one in the middle. OF_SEGMENTS: the one in the middle is of several segments.
APART = Case(length=265, head_width=16, state_width=24, z=True, ends=(0, 70, 71, 71, 201, 265))
SPOILED = (0, 3)
OF_SEGMENTS = Case(length=1100, heads=1, head_width=16, state_width=16, ends=(0, 90, 1000, 1100))
GRADIENTS = ("dy", "dfinal_state")
INPUTS = (*cases.INPUTS, *GRADIENTS)


# What gradients alone do not change.
OF_INPUTS = ("y", "final_state", "dz")


def check(
    case: Case,
    which: int,
    change: Callable[[Tensor], Tensor | float],
    only: tuple = INPUTS,
    device: str = "cpu",
) -> None:
    """With `change` of `only` these inputs in one sequence the others have the same bits."""
    inputs = dict(zip(INPUTS, cases.make(case, device), strict=True))
    unchanged = () if only == INPUTS else OF_INPUTS
    packed_apart.check_case(cases, case, inputs, which, change, only, unchanged)
