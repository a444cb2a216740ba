"""Mutation of the activations' kernels: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import SAME, TUNING, Listed
from tests.mutation.program import Program

PROGRAM = Program("activation", "activation")
TARGETS = {
    "kernels/activation/elementwise.cuh": (PROGRAM,),
    "kernels/activation/functions.cuh": (PROGRAM,),
}
LEFT_OUT = {"kernels/activation/elementwise.cuh": ("registers", "min_blocks")}
HOST_SIDE = ("kernels/activation/elementwise_launch.cuh",)

ELEMENTWISE, FUNCTIONS = "activation/elementwise.cuh", "activation/functions.cuh"

LISTED: tuple[Listed, ...] = (
    # How the work is cut.
    Listed(ELEMENTWISE, "int bytes = ", "constant: 32 → .*", TUNING),
    Listed(ELEMENTWISE, "int run = «16»", "constant: 16 → 17", "as many elements fit in 17 bytes"),
    Listed(ELEMENTWISE, "int warps = ", "constant: 4 → [358]", TUNING),
    # Slices of a row.
    Listed(
        ELEMENTWISE,
        "number = p.rows == «1» ?",
        "constant: 1 → 0",
        "a single row's slices divided by their number are group 0, too",
    ),
    # Groups of rows that are not aligned.
    Listed(ELEMENTWISE, "group_rows = Aligned ? 1 : «64»", "constant: 64 → 128", TUNING),
    Listed(ELEMENTWISE, "end_rows = «4»", "constant: 4 → 8", TUNING),
    Listed(
        ELEMENTWISE,
        "end_slices = Aligned ? «0»",
        "constant: 0 → 1",
        "a slice more of aligned rows, of no columns",
    ),
    Listed(ELEMENTWISE, "left «<» Config::group_rows", "comparison: < → <=", SAME),
    Listed(
        ELEMENTWISE,
        "rows_per_slice >> «32»",
        "constant: 32 → 33",
        "an earlier row, from which the loop finds the right one",
    ),
    Listed(
        ELEMENTWISE,
        "while (column «>=» p.width)",
        "comparison: >= → >",
        "a run at a row's first element is no run of the row before, nor one of this row",
    ),
    # What of a row is moved in runs.
    Listed(ELEMENTWISE, "in_runs = room «>» 0", "comparison: > → >=", SAME),
    Listed(ELEMENTWISE, "in_runs = room > «0»", "constant: 0 → -?1", "less than a run is none"),
    Listed(
        ELEMENTWISE,
        "room & -kRun : «0»",
        "constant: 0 → -1",
        "each lane from the head on does the column before its own: one is done twice, alike",
    ),
    Listed(ELEMENTWISE, "gl<", "constant: 1 → [02]", "all rows are of one batch and depth"),
    # Equal numbers, whichever is taken.
    Listed(FUNCTIONS, "x «<» 0.0f ? ", "comparison: < → <=", "at 0, both are one half"),
)
