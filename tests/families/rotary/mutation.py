"""Mutation of rotary's kernel: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import NOT_BOUNDED, SAME, Listed
from tests.mutation.program import Program

PROGRAM = Program("rotary", "rotary")
TARGETS = {"kernels/rotary/rotary.cuh": (PROGRAM,)}
LEFT_OUT = {"kernels/rotary/rotary.cuh": ("max_threads", "min_blocks")}
HOST_SIDE = ()

ROTARY = "rotary.cuh"

LISTED: tuple[Listed, ...] = (
    # Equal numbers, whichever is taken.
    Listed(ROTARY, "table_row", "bound 3/7 shifted", SAME),
    Listed(ROTARY, "table_row", "limit 1/2 less", SAME),
    Listed(ROTARY, "table_row", "bound 6/7 shifted", SAME),
    Listed(ROTARY, "table_row", "bound 7/7 shifted", SAME),
    Listed(
        ROTARY,
        "rotary_config",
        "equality negated|limit 2/2 (less|more|double)",
        "what the L2 keeps changes no number",
    ),
    # Heads and runs.
    Listed(ROTARY, "rotary", "bound (3|5)/5 shifted", "one step more, of no heads"),
    Listed(ROTARY, "unit_in_heads::store_to", "bound 1/2 shifted", NOT_BOUNDED),
    Listed(
        ROTARY,
        "small_divisor::small_divisor",
        "term 2/2 less",
        "where the inverse is exact it is one more, which small numbers do not feel",
    ),
)
