"""Mutation of linear's kernels: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import ANY_BARRIER, NOT_BOUNDED, SAME, TUNING, Listed
from tests.mutation.program import Program

HOPPER, GENERIC = (Program("linear", "linear", (f"GENERIC={i}",)) for i in (0, 1))
ROWS = Program("linear", "linear_rows")
INT4, E4M3, WIDE = (  # of the form that every architecture has room for, and of Hopper's
    Program("linear", "quantized_linear", (f"E4M3={i}",), forms=(f"SHARED_KB={kb}",))
    for i, kb in ((0, 99), (1, 99), (0, 227))
)
_FOLDER = "kernels/linear"
TARGETS = {
    f"{_FOLDER}/linear.cuh": (HOPPER,),
    f"{_FOLDER}/linear_generic.cuh": (GENERIC,),
    f"{_FOLDER}/linear_pass.cuh": (GENERIC, HOPPER, E4M3),
    f"{_FOLDER}/linear_rows.cuh": (ROWS,),
    f"{_FOLDER}/linear_rows_producer.cuh": (ROWS,),
    f"{_FOLDER}/linear_weights.cuh": (INT4, E4M3),
    f"{_FOLDER}/quantized_linear.cuh": (INT4, E4M3, WIDE),
    f"{_FOLDER}/quantized_linear_feed.cuh": (INT4, E4M3, WIDE),
}
LEFT_OUT: dict[str, tuple[str, ...]] = {}
HOST_SIDE = (
    f"{_FOLDER}/linear_forms.cuh",
    f"{_FOLDER}/linear_generic_launch.cuh",
    f"{_FOLDER}/linear_launch.cuh",
    f"{_FOLDER}/linear_pass_launch.cuh",
    f"{_FOLDER}/linear_rows_launch.cuh",
    f"{_FOLDER}/quantized_linear_launch.cuh",
)

OF_HOPPER, OF_GENERIC, OF_PASS = "linear.cuh", "linear_generic.cuh", "linear_pass.cuh"
OF_ROWS, OF_ROWS_PRODUCER = "linear_rows.cuh", "linear_rows_producer.cuh"
PRODUCER, CONSUMER = "linear_rows_producer", "linear_rows_consumer"
BUTTERFLY = "3 takes a lane to one that has the other pair's sum, too"
ANY_LANE = "any lane may"
UNUSED = "sums of a tile that there is not, which nobody reads"
UNREAD = "squares that nobody reads"
SOONER = "what is asked for before the wait only comes sooner"
ONE_BY_ONE = "element by element is right, too, and slower"
IN_L2 = "nothing depends on what is in the L2"
ABSENT = "of rows or groups that there are not, which nobody writes"
HALVES = "both halves of x's rows, of which the second has sums that nobody reads"
NEXT_BLOCK = "the next block writes over it, unless blocks run backwards: the op's tests notice it"

LISTED: tuple[Listed, ...] = (
    Listed(OF_HOPPER, "", "term [12]/2 (less|more)", TUNING),
    Listed(OF_HOPPER, "linear_config", "term (1|3)/3 .*", TUNING),
    Listed(
        OF_HOPPER,
        "linear_tma_feed::linear_tma_feed",
        "subscript 2/4 next",
        "each warp has the semaphores of the next",
    ),
    Listed(OF_HOPPER, "linear_tma_feed::take", "bound 1/2 shifted", NOT_BOUNDED),
    Listed(OF_HOPPER, "prefetch_first_step", ".*", IN_L2),
    Listed(
        OF_PASS, "block_groups::of", "term more", "the last block of the program is the only one"
    ),
    Listed(
        OF_PASS, "block_groups::passes", "term less", "an empty pass more, which writes nothing"
    ),
    Listed(OF_PASS, "block_groups::count_of", "bound shifted", SAME),
    Listed(OF_GENERIC, "linear_copy_feed::take", "bound 1/. shifted", NOT_BOUNDED),
    Listed(OF_GENERIC, "linear_copy_feed::request", "guard always", "steps that nobody takes"),
    Listed(
        OF_GENERIC,
        "linear_copy_feed::load_stage",
        "guard always|bound 4/5 shifted",
        ONE_BY_ONE,
    ),
    Listed(
        OF_GENERIC,
        "linear_copy_feed::load_stage",
        "bound 3/5 shifted|limit 2/3 (less|more)|limit 3/3 more|branch less",
        SAME,
    ),
    Listed(
        OF_GENERIC,
        "linear_copy_feed::fill_x",
        "guard always|bound 7/8 shifted",
        ONE_BY_ONE,
    ),
    Listed(
        OF_GENERIC,
        "linear_copy_feed::fill_x",
        "limit 3/3 (less|more)|bound 6/8 shifted|branch less",
        SAME,
    ),
    Listed(OF_GENERIC, "linear_copy_feed::for_each_feature", "bound 1/3 shifted", NOT_BOUNDED),
    Listed(OF_GENERIC, "linear_copy_feed::for_each_feature", "guard never", UNUSED),
    Listed(OF_PASS, "linear_norm::share", "argument 2/2 more", BUTTERFLY),
    Listed(OF_PASS, "linear_norm::share", "limit 3/3 more", "all four lanes have the row's sum"),
    Listed(OF_PASS, "linear_sums::clear", "bound shifted", NOT_BOUNDED),
    Listed(OF_PASS, "linear_sums::add", "guard always|bound (1|2)/2 shifted", UNUSED),
    Listed(OF_PASS, "linear_sums::share", "guard always|bound (1|2)/2 shifted", UNUSED),
    Listed(
        "quantized_linear_feed.cuh",
        "quantized_sum_tile::operator()",
        "subscript 2/2 next|term 1/3 (less|more)|term 2/3 less|term 3/3 more",
        "each element has a place of its own then, too",
    ),
    Listed(OF_PASS, "linear_pass_config", "start 1/2 more", ABSENT),
    *(
        Listed(OF_PASS, f"linear_norm::{name}", "guard never|limit less|bound 3/3 shifted", HALVES)
        for name in ("add_squares", "multiply")
    ),
    Listed(
        OF_PASS,
        "linear_epilogue",
        "term [12]/3 .*|term 3/3 less|bound shifted|branch more",
        "threads have other columns, or places for more",
    ),
    Listed(OF_PASS, "linear_epilogue::linear_epilogue", "bound shifted|limit (less|more)", TUNING),
    Listed(OF_PASS, "linear_epilogue::write", "guard 1/3 never|bound (1|2)/5 shifted", ABSENT),
    Listed(OF_PASS, "linear_epilogue::write", "guard 2/3 always", "no bias is one of zeros"),
    Listed(OF_PASS, "linear_epilogue::has", "bound 1/2 shifted", NEXT_BLOCK),
    Listed(OF_PASS, "linear_epilogue::load_of_columns", "bound shifted", NOT_BOUNDED),
    Listed(OF_PASS, "linear_epilogue::for_each", "bound (1|2)/3 shifted", NOT_BOUNDED),
    Listed(OF_PASS, "multiply_groups", "guard (3|4)/4 always", UNREAD),
    Listed(OF_PASS, "multiply_groups", "barrier number (1|2)/2 more", ANY_BARRIER),
    Listed(OF_ROWS_PRODUCER, "", "term [12]/2 (less|more)", TUNING),
    Listed(
        OF_ROWS_PRODUCER,
        "linear_rows_config",
        "start (1|4)/5 (less|more)|start (2|3)/5 double",
        TUNING,
    ),
    Listed(OF_ROWS_PRODUCER, "rows_part::of", "bound 1/2 shifted", SAME),
    Listed(
        OF_ROWS_PRODUCER,
        "rows_part::of",
        "bound 2/2 shifted|branch (1|2)/2 more",
        "the next block's first group, too, of which both store the same, or one behind the last",
    ),
    Listed(OF_ROWS_PRODUCER, "rows_part::count_of", "bound shifted", SAME),
    Listed(OF_ROWS_PRODUCER, f"{PRODUCER}::begin", "guard never", SOONER),
    Listed(OF_ROWS_PRODUCER, f"{PRODUCER}::has_x", "term more", "any of the producers may bring x"),
    Listed(OF_ROWS_PRODUCER, f"{PRODUCER}::prefetch_first_step", ".*", IN_L2),
    Listed(OF_ROWS, f"{CONSUMER}::begin", "barrier number more", ANY_BARRIER),
    Listed(OF_ROWS, f"{CONSUMER}::multiply", "guard 4/4 always", UNREAD),
    Listed(OF_ROWS, f"{CONSUMER}::share", "guard always", UNREAD),
    Listed(OF_ROWS, f"{CONSUMER}::share_squares", "argument 2/2 more", BUTTERFLY),
    Listed(
        OF_ROWS, f"{CONSUMER}::share_squares", "limit 3/3 more", "all four lanes have the row's sum"
    ),
    Listed(OF_ROWS, f"{CONSUMER}::load_quad", "guard 1/2 never", ONE_BY_ONE),
    Listed(OF_ROWS, f"{CONSUMER}::store_quad", "guard 1/2 never", ONE_BY_ONE),
    Listed(OF_ROWS, f"{CONSUMER}::write", "bound 1/7 shifted", SAME),
    Listed(
        OF_ROWS,
        f"{CONSUMER}::write",
        "branch 3/3 (less|more)",
        "groups of rows that there are not, each of which is left out",
    ),
    Listed(OF_ROWS, "linear_rows", "limit 1/3 more", ANY_LANE),
    Listed(OF_ROWS, "linear_rows", "guard 3/4 never|limit 2/3 less|step 1/2 deleted", SOONER),
    Listed(
        OF_ROWS, "linear_rows", "barrier 2/2 deleted", "each thread waits for the grid by itself"
    ),
)
