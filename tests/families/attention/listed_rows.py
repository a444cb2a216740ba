"""Mutants of the kernels beside the products of attention's backward that no run can notice."""

from tests.mutation.listing import SAME, Listed

BOUNDS, ROWS = "attention_backward_bounds.cuh", "attention_backward_rows.cuh"
ALL_FINITE = "who looks without need finds all finite"

LISTED: tuple[Listed, ...] = (
    Listed(
        ROWS,
        "attention_row_place::has_rows",
        "bound shifted",
        "a block more, of no rows, whose number is nobody's",
    ),
    Listed(
        ROWS,
        "dq_factor",
        "start 2/2 (less|more)",
        "of a dq below 2^-97, a bit less or more",
    ),
    Listed(ROWS, "dq_factor", "bound 1/3 shifted", SAME),
    Listed(
        BOUNDS,
        "leave_finite",
        "guard never|result 1/2 (less|more)",
        ALL_FINITE,
    ),
    Listed(BOUNDS, "leave_finite", "result 2/2 more", "any but 0 says it"),
    Listed(
        BOUNDS,
        "leave_finite",
        "start 2/2 more|limit 2/2 less",
        "a NaN that is left is passed over by fmaxf; of infinities are Python's tests",
    ),
    Listed(
        BOUNDS,
        "attention_backward_bounds",
        "limit ./2 more",
        "all lanes of a warp have its bounds",
    ),
    Listed(
        BOUNDS,
        "attention_backward_bounds",
        "guard 1/3 always",
        "who looks into each number finds the same of all, and later",
    ),
    Listed(
        BOUNDS,
        "attention_backward_bounds",
        "start less|term less",
        "a maximum may have the first warp's twice, and 256 / 31 is 8, too",
    ),
    Listed(
        BOUNDS,
        "usual_key_bounds",
        "start ./2 (less|more)",
        "what begins as NaN is looked into once more, and 2^-133 is less than any bound",
    ),
    *(
        Listed(BOUNDS, f"usual_key_bounds::{name}", of, SAME)
        for name, of in (
            ("add", "bound 2/2 shifted"),
            ("add_pair", "bound ./2 shifted"),
            ("largest_k", "bound shifted"),
            ("is_right", "bound shifted"),
        )
    ),
    Listed(
        ROWS,
        "finish_rows",
        "term 1(2|4)/17 less",
        "of multiples of 32 below 128 and of 8 below 64, 15 and 16 divide alike",
    ),
    Listed(ROWS, "finish_rows", "term 15/17 less", "of 0 and 8, 7 and 8 divide alike"),
    Listed(ROWS, "finish_rows", "guard 1/4 always", "each block stores the same zeros"),
    Listed(
        ROWS,
        "finish_rows",
        "guard 3/4 never|bound 4/6 shifted",
        "what it loads of rows that do not exist, nobody stores",
    ),
    Listed(
        ROWS,
        "finish_rows",
        "bound 2/6 shifted",
        "rows of the next block, which stores them later: of other orders are Python's tests",
    ),
    Listed(
        BOUNDS,
        "thread_rows::load",
        "argument ./4 more",
        "the smallest of all bf16 and fp16, beside 0",
    ),
    Listed(
        BOUNDS,
        "norm_of_two_rows",
        "guard never",
        "who looks beyond the squares without need takes the root of them all the same",
    ),
    Listed(BOUNDS, "norm_of_two_rows", "bound ./2 shifted", "either is right"),
    Listed(ROWS, "attention_row_pairs::load", "branch less", "no row's number is less than 0"),
    Listed(
        ROWS,
        "attention_row_pairs::finish",
        "guard never|bound 2/2 shifted|limit 2/2 more",
        "the other lanes of a row store the same",
    ),
    Listed(
        ROWS,
        "attention_backward_prepare",
        "guard always",
        "a block of no rows, whose dq is nobody's, is zeroed too",
    ),
    *(
        Listed(BOUNDS, function, "argument " + change, why)
        for function in ("attention_backward_bounds", "bounds_of_sequence")
        for change, why in (
            ("more", "17, 8, 4, 2 and 1 lead to all lanes too, and a maximum may have one twice"),
            ("double", "32 leads to the lane itself, and 16 to 1 follow"),
        )
    ),
)
