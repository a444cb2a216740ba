"""Mutation of cross_entropy's kernels: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import (
    ANY_BARRIER,
    NOT_BOUNDED,
    SAME,
    SAME_SUMS,
    TUNING,
    UNWATCHED,
    Listed,
)
from tests.mutation.program import Program

SUMS_PROGRAM = Program("cross_entropy", "cross_entropy_sums")
ROWS_PROGRAM = Program("cross_entropy", "cross_entropy_rows")
LOSS_PROGRAM = Program("cross_entropy", "cross_entropy_loss")
STREAM_PROGRAM = Program("cross_entropy", "cross_entropy_stream")
TWO_PASS_PROGRAM = Program("cross_entropy", "cross_entropy_two_pass")
TARGETS = {
    "kernels/cross_entropy/cross_entropy_backward.cuh": (SUMS_PROGRAM,),
    "kernels/cross_entropy/cross_entropy_far.cuh": (
        ROWS_PROGRAM,
        STREAM_PROGRAM,
        LOSS_PROGRAM,
        TWO_PASS_PROGRAM,
    ),
    "kernels/cross_entropy/cross_entropy_loss.cuh": (LOSS_PROGRAM, TWO_PASS_PROGRAM),
    "kernels/cross_entropy/cross_entropy_reduce.cuh": (SUMS_PROGRAM,),
    "kernels/cross_entropy/cross_entropy_row.cuh": (
        SUMS_PROGRAM,
        ROWS_PROGRAM,
        LOSS_PROGRAM,
        STREAM_PROGRAM,
        TWO_PASS_PROGRAM,
    ),
    "kernels/cross_entropy/cross_entropy_rows.cuh": (ROWS_PROGRAM,),
    "kernels/cross_entropy/cross_entropy_stream.cuh": (STREAM_PROGRAM,),
    "kernels/cross_entropy/cross_entropy_two_pass.cuh": (TWO_PASS_PROGRAM,),
}
LEFT_OUT = {
    "kernels/cross_entropy/cross_entropy_backward.cuh": ("threads", "min_blocks"),
    "kernels/cross_entropy/cross_entropy_loss.cuh": ("threads", "min_blocks"),
    "kernels/cross_entropy/cross_entropy_reduce.cuh": ("threads", "shared_bytes"),
    "kernels/cross_entropy/cross_entropy_rows.cuh": (
        "warp_columns",
        "max_warps",
        "max_threads",
        "min_blocks",
        "block_columns",
    ),
    "kernels/cross_entropy/cross_entropy_two_pass.cuh": ("max_threads", "warp_columns"),
}
HOST_SIDE = (
    "kernels/cross_entropy/cross_entropy_configs.cuh",
    "kernels/cross_entropy/cross_entropy_launch.cuh",
)

ROW, ROWS = "cross_entropy_row.cuh", "cross_entropy_rows.cuh"
STREAM, REDUCE = "cross_entropy_stream.cuh", "cross_entropy_reduce.cuh"
BACKWARD, LOSS = "cross_entropy_backward.cuh", "cross_entropy_loss.cuh"
TWO_PASS = "cross_entropy_two_pass.cuh"
SAME_QUOTIENT = "the quotient is the same"
BUTTERFLY = "17, 8, 4, 2, 1 take a lane to every other one, too"
ONE_BY_ONE = "what is aligned is stored element by element, too: right, and slower"
UNWANTED = "a sum that nobody wants"
NO_PLACE = "an element of no such place is looked for, and none is found"
UNCOUNTED = "without a mean nobody wants the count"
ANY_ROW = "any row's warp may add up, where all of them run"
NO_LOOSE = "−2 is no place of a loose element either"
ADDS_NOTHING = "with a factor of 0 nothing is added"

LISTED: tuple[Listed, ...] = (
    # A row's pieces, sums and gradient.
    Listed(BACKWARD, "cross_entropy_backward_config", "start .*", TUNING),
    Listed(
        BACKWARD,
        "cross_entropy_backward",
        "guard 2/5 never|limit 1/3 less",
        "each row finds out by itself that its factor is 1",
    ),
    Listed(REDUCE, "cross_entropy_count", "term (less|more|double)", TUNING),  # loads at a time
    Listed(REDUCE, "cross_entropy_total", "term (less|more|double)", TUNING),
    Listed(REDUCE, "block_sum", "guard 2/2 always", "other threads' totals are not used"),
    Listed(REDUCE, "block_sum", "limit 2/3 more", "all have the sum"),
    Listed(REDUCE, "block_sum", "start 1/3 more", BUTTERFLY),
    Listed(ROW, "row_sums::combine_lanes", "start (1|2|3)/3 more", BUTTERFLY),
    Listed(ROW, "divisor", "start more", BUTTERFLY),
    Listed(ROW, "add_up_losses", "start 6/6 more", BUTTERFLY),
    Listed(
        ROW,
        "row_sums::combine_lanes",
        "start 1/3 double",
        "lane 32 away is the lane itself, than which its number is no larger",
    ),
    Listed(ROW, "vector16", "term more", SAME_QUOTIENT),
    Listed(ROW, "vector16::to_global", "guard never", ONE_BY_ONE),
    Listed(
        ROW,
        "row_pieces::row_pieces",
        "limit less",
        "of an aligned row the first 16 bytes are loose: right, and slower",
    ),
    Listed(
        ROW,
        "row_pieces::row_pieces",
        "guard never",
        "there is no vector then, and a tail of as many less than none: all are loose",
    ),
    Listed(ROW, "row_pieces::row_pieces", "bound shifted", SAME),
    Listed(ROWS, "register_row::far", "bound shifted", SAME),
    Listed(ROW, "row_sums::include_one", "guard always", UNWANTED),
    Listed(ROW, "row_sums::combine_lanes", "guard never", UNWANTED),
    Listed(ROW, "group_sums", "start .*", "blocks have 16 warps at most"),
    Listed(ROW, "", "start more", ANY_BARRIER),
    Listed(
        ROW,
        "combine",
        "guard 1/3 never|limit 1/2 less",
        "the sums of a single warp come back to it through shared memory",
    ),
    Listed(
        ROW,
        "combine",
        "barrier 1/2 deleted",
        f"the lanes have just met in shuffles, and {UNWATCHED}",
    ),
    Listed(ROW, "combine", "limit 2/2 more", SAME_SUMS),
    Listed(ROW, "add_up_losses", "limit 4/4 more", SAME_SUMS),
    Listed(ROW, "combine", "barrier number more", "they all move by one"),
    Listed(ROW, "column_of", "limit less", "−1 is what there is for no column, too"),
    Listed(ROW, "column_of", "branch more", "−2 is no column either"),
    Listed(ROW, "row_gradient::hit_target", "guard never", NO_PLACE),
    Listed(ROW, "row_gradient::hit_target", "limit less", NO_PLACE),
    Listed(ROW, "row_gradient::hit_target", "bound 2/3 shifted", NO_PLACE),
    Listed(
        ROW, "is_defined", "bound 2/2 shifted", "a row of −inf alone is NaN also by ∞ − ∞ and 0 · ∞"
    ),
    Listed(ROW, "loss_of", "guard 1/2 always", ADDS_NOTHING),
    Listed(ROW, "loss_of", "bound 1/2 shifted", ADDS_NOTHING),
    Listed(ROW, "loss_of", "guard 2/2 always", ADDS_NOTHING),
    Listed(ROW, "loss_of", "bound 2/2 shifted", ADDS_NOTHING),
    Listed(ROW, "gradient_of", "bound shifted", ADDS_NOTHING),
    # Few rows' total.
    Listed(ROW, "count_of_lane", "guard 1/2 never", UNCOUNTED),
    Listed(ROW, "count_of_lane", "result (less|more)", UNCOUNTED),
    Listed(ROW, "count_of_lane", "term (less|more|double)", TUNING),  # loads at a time
    Listed(ROW, "add_up_losses", "start 1/6 .*", TUNING),
    Listed(ROW, "add_up_losses", "bound 1/7 shifted", "a step more, of no rows"),
    Listed(ROW, "add_up_losses", "guard 2/2 always", SAME_SUMS),
    Listed(ROW, "add_up_losses", "equality 3/3 negated", SAME_SUMS),
    Listed(ROWS, "cross_entropy_rows", "term more", ANY_ROW),
    Listed(STREAM, "cross_entropy_stream", "term more", ANY_ROW),
    # Where its gradient is stored element by element.
    Listed(BACKWARD, "cross_entropy_backward", "limit 2/3 less", ONE_BY_ONE),
    Listed(ROWS, "register_row::store_gradient", "limit 1/2 less", ONE_BY_ONE),
    Listed(ROWS, "register_row::store_zeros", "limit less", ONE_BY_ONE),
    Listed(
        ROWS,
        "register_row::store_gradient",
        "guard 1/2 (always|never)|equality 2/2 negated|limit 2/2 .*",
        "the same, compiled twice or once",
    ),
    Listed(
        ROWS,
        "register_row::forget_floats",
        "equality negated|limit .*",
        "the same, compiled twice or once",
    ),
    Listed(STREAM, "chunked_row::store_chunks", "limit less", ONE_BY_ONE),
    Listed(STREAM, "chunked_row::store_zeros", "limit less", ONE_BY_ONE),
    # Rows in registers.
    Listed(
        ROWS,
        "cross_entropy_rows_config",
        "equality 1/2 negated|limit 1/3 .*",
        "an ignored row is read or not, and not used",
    ),
    Listed(ROWS, "register_row::include_in", "term more", SAME_QUOTIENT),
    Listed(
        ROWS,
        "register_row::store_zeros",
        "bound shifted",
        "the next warp's first vectors are set to zero by this one, too",
    ),
    Listed(ROWS, "work_on_row", "limit 2/4 more", SAME_SUMS),
    Listed(ROWS, "work_on_row", "bound 1/2 shifted", UNWANTED),
    Listed(ROWS, "cross_entropy_rows_config", "limit 2/3 more", "a row has one block, or up to 8"),
    Listed(ROWS, "combine", "bound 2/3 shifted", "a step more, of no warps"),
    Listed(
        ROWS,
        "work_on_row",
        "wait deleted",
        "a thread that has arrived and ends is not waited for, neither here nor by the simulator",
    ),
    # The loss alone.
    Listed(LOSS, "cross_entropy_loss_config", "start (less|more)", TUNING),
    Listed(LOSS, "include_vectors", "start 1/5 less", TUNING),
    Listed(LOSS, "include_vectors", "bound 1/7 shifted", "a step more, of no vectors"),
    Listed(LOSS, "cross_entropy_loss", "bound 1/2 shifted", UNWANTED),
    Listed(
        LOSS,
        "cross_entropy_loss",
        "guard 2/5 always|equality 2/4 negated|limit 1/4 more",
        SAME_SUMS,
    ),
    Listed(LOSS, "cross_entropy_loss", "branch more", NO_LOOSE),
    # Two passes.
    Listed(TWO_PASS, "cross_entropy_two_pass_config", "start double", TUNING),
    Listed(
        TWO_PASS,
        "walked_row::store_gradient",
        "term (1|2)/2 less",
        "a step more, of no vectors",
    ),
    Listed(
        TWO_PASS, "walked_row::store_gradient", "limit 2/2 less", "no thread comes to that number"
    ),
    Listed(TWO_PASS, "walked_row::store_gradient", "limit 1/2 less", ONE_BY_ONE),
    Listed(TWO_PASS, "walked_row::store_zeros", "limit less", ONE_BY_ONE),
    Listed(TWO_PASS, "walked_row::store", "guard always", ONE_BY_ONE),
    Listed(TWO_PASS, "walked_row::far", "branch more", NO_LOOSE),
    Listed(TWO_PASS, "walk_over_row", "bound 1/2 shifted", UNWANTED),
    Listed(TWO_PASS, "walk_over_row", "limit 1/4 more", "any thread may"),
    Listed(
        TWO_PASS,
        "cross_entropy_two_pass",
        "equality 2/3 negated|limit more",
        "any warp may add up, and the case has two",
    ),
    Listed(TWO_PASS, "cross_entropy_two_pass", "term more", ANY_ROW),
    # The ring.
    Listed(STREAM, "cross_entropy_stream_config", "term (less|more)", TUNING),
    Listed(
        STREAM,
        "chunk_list::chunk_list",
        "branch 1/2 less",
        "without a gradient every chunk is given back, whatever is above their number",
    ),
    Listed(STREAM, "chunk_list::chunk_list", "bound shifted", SAME),
    Listed(
        STREAM,
        "chunk_list::chunk_list",
        "branch 2/2 more",
        "the first chunk comes again although there is room: right, and slower",
    ),
    Listed(STREAM, "target_stream", "start (less|more)", "the first request overwrites it"),
    Listed(STREAM, "load_chunks", "bound 4/4 shifted", SAME),
    Listed(STREAM, "chunked_row::include_chunk", "guard 1/2 never", UNWANTED),
    Listed(STREAM, "work_on_chunks", "bound 1/3 shifted", UNWANTED),
    Listed(STREAM, "work_on_chunks", "phase 1/2 flipped", "either half may be the first"),
    Listed(STREAM, "chunked_row::read", "bound 2/2 shifted", NOT_BOUNDED),
    Listed(STREAM, "chunked_row::store_chunk", "bound 1/2 shifted", NOT_BOUNDED),
    Listed(STREAM, "work_on_chunks", "limit 1/4 more", "any thread may"),
    Listed(
        STREAM,
        "cross_entropy_stream",
        "equality (2|3)/5 negated|limit 2/3 more",
        "any warp may add up, and the case has two",
    ),
    Listed(STREAM, "cross_entropy_stream", "limit 1/3 more", "any thread may"),
    Listed(STREAM, "cross_entropy_stream", "limit 3/3 more", "any lane may"),
)
