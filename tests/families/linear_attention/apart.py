"""Packed sequences of linear_attention are apart, by the backend in force."""

from collections.abc import Callable

from torch import Tensor

from tests.families.linear_attention import cases
from tests.families.linear_attention.cases import Case
from tests.tools import packed_apart

# Of several chunks, one token, none, several chunks again, and one. SPOILED: one in front of all
# others, and one in the middle. OF_SEGMENTS: the one in the middle is of several segments.
APART = Case(length=265, key_heads=1, key_width=16, value_width=24, ends=(0, 70, 71, 71, 201, 265))
SPOILED = (0, 3)
OF_SEGMENTS = Case(
    length=1100, heads=1, key_heads=1, key_width=16, value_width=16, ends=(0, 90, 1000, 1100)
)
INPUTS = ("q", "k", "v", "log_decay", "initial_state", "d_o", "d_final")
GRADIENTS = ("d_o", "d_final")


def check(
    case: Case, which: int, change: Callable[[Tensor], Tensor | float], only: tuple = INPUTS
) -> None:
    """With `change` of `only` these inputs in one sequence the others have the same bits."""
    inputs = dict(zip(INPUTS, cases.make(case), strict=True))
    some = {name: inputs[name] for name in only}
    changed = {**inputs, **packed_apart.spoil(some, case.ends, which, change)}

    def run(given) -> dict[str, Tensor]:
        results = cases.run_case(case, tuple(given.values()))
        return {
            name: t
            for name, t in zip(cases.names(case), results, strict=True)
            if only == INPUTS or name not in ("o", "final_state")
        }

    packed_apart.check_apart(run, inputs, changed, case.ends, which)
