"""Mistakes planted in mlp's kernels: the simulator or the numbers must find each one.

Each changes one place, and runs the program of the mutation tests with it.
"""

from functools import partial

from tests.tools.planted import Mistake

in_product = partial(Mistake, file="kernels/mlp/linear_gelu.cuh")
in_tiles = partial(Mistake, file="kernels/mlp/linear_gelu_tiles.cuh")
in_sums = partial(Mistake, file="kernels/mlp/column_sums.cuh")

WRONG = r"(hidden|activated|dhidden|dbias|sums):\d+: is "

MISTAKES = (
    in_product(
        "products_begin_before_their_tiles_have_come",
        "      shared.stages.wait_full(at);\n",
        "",
        rf"RACE|NaN|{WRONG}",
    ),
    in_product(
        "a_stage_is_released_before_it_has_been_read",
        "warpgroup::mma_async_wait<1>();  // the step before has been read: tell all blocks",
        "",
        ".",
    ),
    in_product(
        "subtiles_are_written_while_they_leave",
        "wait(shared.there[w][first], number / 2 ^ 1);",
        "",
        "RACE|nothing orders|tma",
    ),
    in_product(
        "hidden_is_read_before_it_has_come",
        "      wait(shared.there[w][number], phase);\n",
        "",
        rf"RACE|NaN|nothing orders|{WRONG}",
    ),
    in_product(
        "the_next_hidden_overtakes_sums_of_columns",
        "    arch::fence_async_proxy();  // before the copy that will overwrite the subtiles\n",
        "",
        "PROXY FENCE",
    ),
    in_product(
        "columns_are_added_up_before_all_rows_are_written",
        "    phase ^= 1;\n    meet();\n",
        "    phase ^= 1;\n",
        "RACE|nothing orders",
    ),
    in_product(
        "a_bias_is_read_before_it_is_stored",
        "data[lane % kWidth], bias);\n    meet();\n",
        "data[lane % kWidth], bias);\n",
        rf"RACE|nothing orders|{WRONG}",
    ),
    in_product(
        "a_block_ends_while_the_other_one_may_write_to_it",
        "  cluster::sync();  // until then the other block may write here\n",
        "",
        ".",
    ),
    in_tiles(
        "a_stage_is_filled_before_all_blocks_have_read_it",
        "      shared.stages.wait_empty(at);  // in all blocks\n",
        "",
        ".",
    ),
    in_tiles(
        "a_weight_is_put_into_one_block",
        "(1 << Config::blocks) - 1",
        "1 << rank",
        ".",
    ),
    in_tiles(
        "what_leaves_is_not_waited_for",
        "      tma::store_async_read_wait<0>();\n      arrive(shared.there[w][first]);",
        "      arrive(shared.there[w][first]);",
        ".",
    ),
    in_sums(
        "warps_are_added_up_before_all_have_stored",
        "  arch::sync_block();\n  if (warp != 0) return;",
        "  if (warp != 0) return;",
        rf"RACE|nothing orders|{WRONG}",
    ),
    in_sums(
        "parts_are_read_before_they_are_written",
        "  begin_dependent_grid();\n",
        "",
        "PDL",
    ),
)
