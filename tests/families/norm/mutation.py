"""Mutation of the norms' kernels: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import (
    ANY_BARRIER,
    NOT_BOUNDED,
    SAME,
    SAME_SUMS,
    TUNING,
    Listed,
)
from tests.mutation.program import Program

FORWARD_PROGRAM = Program("norm", "norm_forward")
BACKWARD_PROGRAMS = tuple(Program("norm", "norm_backward", (f"CONFIGS={i}",)) for i in (0, 1))
PIPELINED_PROGRAM = Program("norm", "norm_backward", ("CONFIGS=2",))
FEW_PROGRAM = Program("norm", "norm_backward", ("CONFIGS=3",))
MEDIUM_PROGRAM = Program("norm", "norm_backward", ("CONFIGS=4",))
NARROW_PROGRAM = Program("norm", "norm_narrow")
TARGETS = {
    "kernels/norm/any_element.cuh": (
        FORWARD_PROGRAM,
        BACKWARD_PROGRAMS[0],
        NARROW_PROGRAM,
        FEW_PROGRAM,
    ),
    "kernels/norm/dropout.cuh": (FORWARD_PROGRAM, NARROW_PROGRAM, *BACKWARD_PROGRAMS),
    "kernels/norm/narrow_row.cuh": (NARROW_PROGRAM,),
    "kernels/norm/norm_forward.cuh": (FORWARD_PROGRAM, NARROW_PROGRAM),
    "kernels/norm/norm_forward_any.cuh": (FORWARD_PROGRAM,),
    "kernels/norm/norm_forward_long.cuh": (FORWARD_PROGRAM,),
    "kernels/norm/norm_forward_narrow.cuh": (NARROW_PROGRAM,),
    "kernels/norm/norm_backward.cuh": (*BACKWARD_PROGRAMS, NARROW_PROGRAM, PIPELINED_PROGRAM),
    "kernels/norm/norm_backward_few.cuh": (FEW_PROGRAM,),
    "kernels/norm/norm_backward_long.cuh": (BACKWARD_PROGRAMS[0],),
    "kernels/norm/norm_backward_medium.cuh": (MEDIUM_PROGRAM,),
    "kernels/norm/norm_backward_narrow.cuh": (NARROW_PROGRAM,),
    "kernels/norm/norm_backward_pipelined.cuh": (PIPELINED_PROGRAM,),
    "kernels/norm/norm_reduce.cuh": (*BACKWARD_PROGRAMS, FEW_PROGRAM),
    "kernels/norm/row.cuh": (*BACKWARD_PROGRAMS, FORWARD_PROGRAM, NARROW_PROGRAM),
}
LEFT_OUT = {
    "kernels/norm/norm_forward.cuh": ("max_threads", "max_width", "min_blocks"),
    "kernels/norm/norm_forward_any.cuh": ("max_threads",),
    "kernels/norm/norm_backward.cuh": ("max_threads",),
    "kernels/norm/norm_backward_narrow.cuh": ("min_blocks",),
}
HOST_SIDE = ("kernels/norm/norm_configs.cuh", "kernels/norm/norm_launch.cuh")

FORWARD, NARROW = "norm_forward.cuh", "norm_forward_narrow.cuh"
BACKWARD, NARROW_BACKWARD = "norm_backward.cuh", "norm_backward_narrow.cuh"
PIPELINED, FEW = "norm_backward_pipelined.cuh", "norm_backward_few.cuh"
MEDIUM = "norm_backward_medium.cuh"
ANY, FORWARD_ANY, LONG = "any_element.cuh", "norm_forward_any.cuh", "norm_backward_long.cuh"
REDUCE, ROW, DROPOUT = "norm_reduce.cuh", "norm/row.cuh", "dropout.cuh"
NARROW_ROW = "norm/narrow_row.cuh"
FORWARD_LONG = "norm_forward_long.cuh"
PIECES = "pieces of a row are larger or smaller"
NO_MORE = "where each row has a block, there is none too many"
PAST = "one slice of a row more, which has no columns"
NO_ROWS = "a step past the last row finds none"
NO_SUCH_ROW = "there is no such row either"
ROWS_OF_VIEW = "a view's number of rows, which no load or store of a vector looks at"
ANY_THREAD = "any single thread may do it"
FACTORS = "where nothing drops, the factors are 1; where there is no dx, nobody reads them"
KNOWN = "a view whose length the compiler knows has that length, whatever is passed"
ADDS_ZERO = "where there is no offset, 0 is added"
ONE_BY_ONE = "elements may move one by one where they could in runs"
NOT_STORED = "the column past the last is centred too, and neither counted nor stored"
ONE_PASS_MORE = "a pass more, of which nothing is kept"

LISTED: tuple[Listed, ...] = (
    # How the work is cut.
    Listed(
        FORWARD,
        "norm_forward_config",
        "limit (1|3)/7 .*|equality 1/3 negated|limit 2/7 (less|more)|bound 1/3 shifted",
        PIECES,
    ),
    Listed(FORWARD, "norm_forward_config", "branch (1|2)/4 .*", PIECES),
    Listed(
        FORWARD,
        "norm_forward_config",
        "equality 2/3 negated|limit (4|5|6)/7 (less|more)|bound (2|3)/3 shifted",
        "whose mean is taken is a choice",
    ),
    Listed(FORWARD, "norm_row", "argument 3/3 (less|more)", KNOWN),
    Listed(
        FORWARD,
        "norm_forward",
        "guard 2/2 never",
        "a whole row is as right where columns are compared, only slower",
    ),
    Listed(FORWARD, "norm_forward", "bound 1/3 shifted|limit (1|2)/3 (less|more)", NO_MORE),
    Listed(
        FORWARD,
        "norm_row",
        "guard 1/2 always|equality (1|2)/3 negated|limit (1|2)/2 (less|more)",
        ANY_THREAD,
    ),
    Listed(FORWARD, "take_piece", "bound shifted", NOT_BOUNDED),
    Listed(FORWARD, "row_parameters::load", "branch less", "no columns either"),
    Listed(FORWARD, "norm_row", "guard 2/2 always", ADDS_ZERO),
    Listed(FORWARD, "norm_forward", "bound 2/3 shifted|limit 3/3 (less|more)", NO_MORE),
    Listed(
        BACKWARD,
        "norm_backward_config",
        "bound shifted|limit 1/3 (less|more)",
        "a row is kept as floats or as it was loaded",
    ),
    Listed(
        BACKWARD,
        "norm_backward_config",
        "equality (1|2)/2 negated|limit (2|3)/3 (less|more)",
        "the next row is loaded early or late",
    ),
    Listed(BACKWARD, "norm_backward_config", "term more", TUNING),
    Listed(PIPELINED, "", "start (less|more)", TUNING),
    Listed(NARROW, "norm_forward_narrow_config", "start double", TUNING),
    Listed(
        NARROW,
        "norm_forward_narrow_config",
        "equality 2/3 negated|limit 2/3 (less|more)|branch 3/5 (less|more)|branch (4|5)/5 .*",
        TUNING,
    ),
    Listed(
        NARROW,
        "norm_forward_narrow_config",
        "equality 1/3 negated|limit 1/3 (less|more)|branch 1/5 .*|branch 2/5 double",
        TUNING,
    ),
    Listed(
        NARROW_BACKWARD,
        "norm_backward_narrow_config",
        "equality negated|limit .*|branch 1/4 (less|more)|branch (2|4)/4 more",
        TUNING,
    ),
    Listed(REDUCE, "norm_reduce_config", "start .*", TUNING),
    Listed(FEW, "", "start 1/2 .*", TUNING),
    Listed(FEW, "", "start 2/2 .*", TUNING),
    Listed(FEW, "few_columns", "term more", TUNING),
    Listed(FEW, "few_columns", "argument less", "half a run is 1 or more"),
    # Rows, and slices of a row.
    Listed(NARROW_BACKWARD, "norm_backward_narrow", "bound 1/4 shifted", NO_ROWS),
    Listed(FEW, "sum_columns", "bound 1/7 shifted", NO_ROWS),
    Listed(
        LONG,
        "norm_backward_long_sums",
        "guard never|bound 1/2 shifted|limit less",
        "a warp that has no columns loads and stores none",
    ),
    Listed(FORWARD_LONG, "norm_forward_long", "term 1/4 less", PAST),
    Listed(FORWARD_LONG, "norm_forward_long", "bound (1|2|3)/3 shifted", PAST),
    Listed(LONG, "norm_backward_long_dx", "term 1/2 less", PAST),
    Listed(LONG, "norm_backward_long_dx", "bound (1|3)/3 shifted", PAST),
    Listed(
        BACKWARD, "add_groups", "guard 3/3 never", "only what the first group adds up is stored"
    ),
    Listed(BACKWARD, "store_gradients", "bound 1/2 shifted", NOT_BOUNDED),
    Listed(FEW, "sum_columns", "bound 2/7 shifted", NOT_BOUNDED),
    Listed(FORWARD_ANY, "norm_forward_any", "term 1/2 less", PAST),
    Listed(FORWARD_ANY, "norm_forward_any", "bound 1/4 shifted", "it is loaded again"),
    Listed(FORWARD_ANY, "norm_forward_any", "branch (1|2)/2 less", ONE_PASS_MORE),
    Listed(
        FORWARD_ANY,
        "norm_forward_any",
        "bound 2/4 shifted|limit 1/8 more",
        "the last pass leaves the loop",
    ),
    Listed(
        FORWARD_ANY,
        "norm_forward_any",
        "bound 4/4 shifted|limit 2/8 less",
        "before the mean is known it is 0",
    ),
    Listed(FORWARD_ANY, "norm_forward_any", "guard 6/9 always", "the first pass keeps one sum"),
    Listed(FORWARD_ANY, "scale_any", "guard 1/2 always", ADDS_ZERO),
    Listed(MEDIUM, "centre_runs", "bound 1/2 shifted", NOT_BOUNDED),
    Listed(
        MEDIUM,
        "norm_backward_medium",
        "guard 3/6 always|bound 3/5 shifted",
        "past the last row the slots are cleared, and nobody takes their sums",
    ),
    Listed(ANY, "moves_whole_runs", "limit 1/2 less", ONE_BY_ONE),
    Listed(ANY, "moves_whole_runs", "limit 2/2 (less|more)", ONE_BY_ONE),
    Listed(ANY, "load_packed_as", "guard never", ONE_BY_ONE),
    Listed(ANY, "store_packed_as", "guard never", ONE_BY_ONE),
    Listed(FEW, "sum_columns", "edge more", NOT_STORED),
    Listed(LONG, "norm_backward_long_sums", "edge more", NOT_STORED),
    Listed(PIPELINED, "norm_backward_pipelined", "edge 2/2 more", NOT_STORED),
    # Views.
    Listed(BACKWARD, "store_partial", "term (less|more)", ROWS_OF_VIEW),
    Listed(REDUCE, "norm_backward_reduce", "term (less|more)", ROWS_OF_VIEW),
    Listed(BACKWARD, "norm_backward", "branch less", NO_SUCH_ROW),
    Listed(PIPELINED, "pipelined_rows::pipelined_rows", "branch less", NO_SUCH_ROW),
    Listed(FEW, "differentiate_row", "branch (1|2)/2 less", "there is no such column either"),
    Listed(ROW, "row_stream", "argument (less|more)|term (less|more)", ROWS_OF_VIEW),
    Listed(ROW, "row_stream::row_stream", "argument (less|more)|term (less|more)", ROWS_OF_VIEW),
    Listed(
        ROW,
        "load_parameter",
        "argument (1|2|3|4)/4 (less|more)|term (1|2)/2 (less|more)",
        ROWS_OF_VIEW,
    ),
    Listed(ROW, "matrix", "argument (1|2)/2 (less|more)|term (1|2)/2 (less|more)", ROWS_OF_VIEW),
    Listed(FORWARD, "part_of", "argument (1|2|3)/3 (less|more)", ROWS_OF_VIEW),
    Listed(
        REDUCE,
        "parameter_gradient::store",
        "argument (1|2)/2 (less|more)",
        "a view's number of rows, and how far apart they are: there is one",
    ),
    # What is added or multiplied with, and changes nothing.
    Listed(
        DROPOUT,
        "dropout_mask::dropout_mask",
        "branch (less|more)",
        "a seed of which nothing is made",
    ),
    Listed(FORWARD, "add_residual", "guard never", FACTORS),
    Listed(NARROW, "add_narrow_residual", "guard always", FACTORS),
    Listed(BACKWARD, "store_gradients", "guard 2/3 always", FACTORS),
    Listed(NARROW_BACKWARD, "narrow_gradient::store", "guard 3/4 always", FACTORS),
    Listed(NARROW_ROW, "load_narrow_parameter", "guard 3/3 never", ADDS_ZERO),
    Listed(ROW, "load_weight", "guard always", ADDS_ZERO),
    # What is done in vain.
    Listed(DROPOUT, "dropout_mask::factors_anywhere", "guard never", "nothing moves by 0"),
    Listed(FORWARD_LONG, "norm_forward_long", "index 5/13 less", "the other is 0 still"),
    Listed(
        MEDIUM,
        "norm_backward_medium",
        "guard 1/6 always",
        "a slot that is cleared is written once more by the row that comes to it",
    ),
    # How sums lie in shared memory.
    Listed(
        ROW,
        "",
        "start .*",
        "blocks have 32 warps at most, and sums whole fours of places",
    ),
    Listed(ROW, "group_sum", "term less", "four places more, which nobody uses"),
    Listed(
        ROW, "group_sum::operator()", "bound 4/6 shifted", "the last warp ends the loop before it"
    ),
    Listed(ROW, "group_sum", "phase flipped", "either half may be the first"),
    Listed(PIPELINED, "pipelined_sum", "start (double|more)", "no more than four are in use"),
    Listed(
        BACKWARD,
        "group_sums",
        "argument double",
        "columns are left and taken in the same order, whichever it is",
    ),
    # Equal numbers, whichever is taken.
    Listed(FORWARD, "moments_of", "bound 1/3 shifted", SAME),
    Listed(FORWARD, "moments_of", "bound 3/3 shifted", SAME),
    # Barriers and lanes, of which any would do.
    Listed(BACKWARD, "norm_backward", "term more", ANY_BARRIER),
    Listed(MEDIUM, "norm_backward_medium", "term 1/2 more", ANY_BARRIER),
    Listed(
        MEDIUM,
        "norm_backward_medium",
        "limit 1/2 more",
        "any of the block's groups may do it, and there are two at least",
    ),
    Listed(LONG, "norm_backward_long_dx", "term 2/2 more", ANY_BARRIER),
    Listed(FORWARD, "norm_row", "argument 1/3 more", ANY_BARRIER),
    Listed(FORWARD_ANY, "norm_forward_any", "term 2/2 more", ANY_BARRIER),
    Listed(FORWARD_LONG, "norm_forward_long", "term 4/4 more", ANY_BARRIER),
    Listed(FEW, "differentiate_row", "argument more", ANY_BARRIER),
    Listed(
        BACKWARD,
        "add_groups",
        "guard 2/3 always|bound 2/4 shifted|limit 2/3 less",
        "all threads of a single group pass the barrier too",
    ),
    Listed(
        ROW,
        "group_sum::operator()",
        "guard 1/3 never|limit 1/3 less",
        "a warp that is alone adds its sums to nothing",
    ),
    Listed(ROW, "group_sum::operator()", "barrier number more", "they all move by one"),
    Listed(PIPELINED, "pipelined_sum::leave", "limit more", SAME_SUMS),
    Listed(PIPELINED, "norm_backward_pipelined", "limit more", ANY_THREAD),
    Listed(
        FORWARD_ANY,
        "norm_forward_any",
        "guard 9/9 always|equality 9/9 negated|limit 8/8 more",
        SAME_SUMS,
    ),
    Listed(
        FORWARD_LONG, "norm_forward_long", "guard always|equality negated|limit more", SAME_SUMS
    ),
    Listed(NARROW, "norm_forward_narrow", "guard 2/2 always", SAME_SUMS),
)
