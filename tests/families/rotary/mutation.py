"""Mutation of rotary's kernel: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import LONGER, NOT_BOUNDED, SAME, Listed
from tests.mutation.program import Program

PROGRAM = Program("rotary", "rotary")
TARGETS = {"kernels/rotary/rotary.cuh": (PROGRAM,)}
LEFT_OUT = {"kernels/rotary/rotary.cuh": ("max_threads", "min_blocks")}
HOST_SIDE = ()

ROTARY = "rotary.cuh"

LISTED: tuple[Listed, ...] = (
    # Equal numbers, whichever is taken.
    Listed(ROTARY, "start = entry «>» 0 ?", "comparison: > → >=", SAME),
    Listed(ROTARY, "start = entry > «0» ?", "constant: 0 → -1", SAME),
    Listed(ROTARY, "if (shift > to_last)", "comparison: > → >=", SAME),
    Listed(ROTARY, "shift «<» -position ?", "comparison: < → <=", SAME),
    # Heads and runs.
    Listed(ROTARY, "float cos[", "subscript: run → .*1", LONGER),
    Listed(ROTARY, "head «>=» all_heads", "comparison: >= → >", "one step more, of no heads"),
    Listed(ROTARY, "i «<» Config::heads && head", "comparison: < → <=", NOT_BOUNDED),
    Listed(
        ROTARY,
        "divisor - «1») / divisor",
        "constant: 1 → 0",
        "where the inverse is exact it is one more, which small numbers do not feel",
    ),
)
