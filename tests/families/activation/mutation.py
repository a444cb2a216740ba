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
    Listed(ELEMENTWISE, "elementwise_config", "start 1/3 .*", TUNING),
    Listed(ELEMENTWISE, "elementwise_config", "term more", "as many elements fit in 17 bytes"),
    Listed(ELEMENTWISE, "elementwise_config", "start 2/3 .*", TUNING),
    # Slices of a row.
    Listed(
        ELEMENTWISE,
        "elementwise",
        "limit 1/3 less",
        "a single row's slices divided by their number are group 0, too",
    ),
    # Groups of rows that are not aligned.
    Listed(ELEMENTWISE, "elementwise_config", "branch 2/3 double", TUNING),
    Listed(ELEMENTWISE, "elementwise_config", "start 3/3 double", TUNING),
    Listed(
        ELEMENTWISE,
        "elementwise_config",
        "branch 3/3 more",
        "a slice more of aligned rows, of no columns",
    ),
    Listed(ELEMENTWISE, "elementwise", "bound 2/3 shifted", SAME),
    Listed(
        ELEMENTWISE,
        "transform_runs",
        "term more",
        "an earlier row, from which the loop finds the right one",
    ),
    Listed(
        ELEMENTWISE,
        "transform_runs",
        "bound 2/5 shifted",
        "a run at a row's first element is no run of the row before, nor one of this row",
    ),
    # What of a row is moved in runs.
    Listed(ELEMENTWISE, "transform_ends", "bound 2/5 shifted", SAME),
    Listed(ELEMENTWISE, "transform_ends", "limit (less|more)", "less than a run is none"),
    Listed(
        ELEMENTWISE,
        "transform_ends",
        "branch 1/2 less",
        "each lane from the head on does the column before its own: one is done twice, alike",
    ),
    Listed(
        ELEMENTWISE,
        "transform_slice",
        "argument (1|2)/2 (less|more)|term (1|2)/2 (less|more)",
        "all rows are of one batch and depth",
    ),
    # Equal numbers, whichever is taken.
    Listed(FUNCTIONS, "sigmoid", "bound shifted", "at 0, both are one half"),
    Listed(FUNCTIONS, "gelu_erf::at", "bound shifted", "at 0, both are one half"),
)
