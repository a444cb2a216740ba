"""The mistakes of synchronisation in attention's backward, which race mode sees."""

from functools import partial

from tests.tools.planted import Mistake

planted = partial(Mistake, file="kernels/attention/attention_backward_consumer.cuh")
in_producer = partial(Mistake, file="kernels/attention/attention_backward_producer.cuh")
in_wide = partial(Mistake, file="kernels/attention/attention_backward_wide_consumer.cuh")
in_dq = partial(Mistake, file="kernels/attention/attention_backward_dq.cuh")
in_starts = partial(Mistake, file="kernels/attention/attention_backward_sequences.cuh")

MISTAKES = (
    planted(
        "rows_are_not_waited_for",
        "shared.row_ring.wait_full(at);",
        "",
        r"RACE at [^\n]*(wgmma|bulk_load) by |UNINITIALISED|phase",
    ),
    planted(
        "ds_is_not_waited_for",
        "shared.ds_ring.wait_full(dq_at);",
        "",
        r"RACE at [^\n]*wgmma by [^\n]* reads [^\n]*store_matrix by ",
    ),
    planted(
        "ds_overwrites_a_slot_in_use",
        "shared.ds_ring.wait_empty(ds_at);",
        "",
        r"RACE at [^\n]*store_matrix by |arriv|phase",
    ),
    planted(
        "ds_is_shown_without_a_fence",
        "arch::fence_async_proxy();\n    arch::sync_warp();",
        "arch::sync_warp();",
        r"PROXY FENCE at ",
    ),
    planted(
        "factors_are_read_behind_the_fence",
        "const auto next_dq_rows =\n"
        "          attention_dq_rows::load_shared(shared.dq_factors[at.stage] + dq_place());\n"
        "      show_ds();\n",
        "show_ds();\n"
        "      const auto next_dq_rows =\n"
        "          attention_dq_rows::load_shared(shared.dq_factors[at.stage] + dq_place());\n",
        r"PROXY FENCE at |RACE at ",
    ),
    planted(
        "rows_are_released_before_the_products_are_done",
        "warpgroup::mma_async_wait<0>(dk, dv);",
        "",
        r"RACE at [^\n]*wgmma by |accumulator \d+ while the product",
    ),
    planted(
        "keys_are_overwritten_before_both_consumers_have_read_them",
        "arch::named_barrier_sync(kBarrier, 128 * Config::consumers);",
        "",
        r"RACE at [^\n]*(wgmma|store_matrix) by ",
    ),
    planted(
        "numbers_of_rows_are_released_without_a_fence",
        "    } else {\n      arch::fence_async_proxy();\n",
        "    } else {\n",
        r"RACE at |PROXY FENCE at ",
    ),
    in_producer(
        "queries_overwrite_a_slot_in_use",
        "shared.row_ring.wait_empty(at);",
        "",
        r"RACE at [^\n]*|arriv|bytes|phase",
    ),
    in_wide(
        "wide_weights_are_not_waited_for",
        "shared.ds_ring.wait_full(at);",
        "",
        r"RACE at |UNINITIALISED|phase",
    ),
    in_wide(
        "wide_weights_are_shown_before_all_lanes_have_stored_them",
        "arch::sync_warp();\n    if (!kGradients",
        "if (!kGradients",
        r"RACE at ",
    ),
    in_wide(
        "wide_rows_are_released_before_the_products_are_done",
        "warpgroup::mma_async_wait<0>(sum);\n"
        "    if (arch::lane_id() == 0) shared.row_ring.release_after_mma(at);",
        "if (arch::lane_id() == 0) shared.row_ring.release_after_mma(at);\n"
        "    warpgroup::mma_async_wait<0>(sum);",
        r"RACE at [^\n]*wgmma by ",
    ),
    in_wide(
        "wide_numbers_of_rows_are_released_without_a_fence",
        "arch::fence_async_proxy();",
        "",
        r"RACE at |PROXY FENCE at ",
    ),
    in_wide(
        "wide_gradients_take_the_place_of_keys_that_the_other_consumer_reads",
        "arch::named_barrier_sync(kBarrier, 128 * Config::consumers);",
        "",
        r"RACE at [^\n]*(wgmma|store_matrix) by ",
    ),
    in_wide(
        "wide_gradients_are_stored_before_all_of_them_are_there",
        "warpgroup::sync(kBarrier + 1 + W);",
        "",
        r"RACE at ",
    ),
    in_dq(
        "dq_keys_are_not_waited_for",
        "shared.kv_ring.wait_full(at);\n    warpgroup::mma_fence();",
        "warpgroup::mma_fence();",
        r"RACE at [^\n]*wgmma by |UNINITIALISED|phase",
    ),
    in_dq(
        "dq_gradients_of_o_are_not_waited_for",
        "shared.do_ring.wait_full(do_at);",
        "",
        r"RACE at [^\n]*wgmma by |UNINITIALISED|phase",
    ),
    in_dq(
        "dq_tile_is_given_back_before_all_have_read_it",
        "warpgroup::sync(kBarrier + w);  // all have read which tile it is\n",
        "",
        r"RACE at |DEADLOCK",
    ),
    in_dq(
        "dq_keys_are_released_before_their_product_is_done",
        "warpgroup::mma_async_wait<0>(dq);\n"
        "    if (signals()) shared.kv_ring.release_after_mma(at);",
        "if (signals()) shared.kv_ring.release_after_mma(at);\n"
        "    warpgroup::mma_async_wait<0>(dq);",
        r"RACE at [^\n]*wgmma by ",
    ),
    in_dq(
        "dq_is_stored_before_all_of_it_is_there",
        "warpgroup::store(place, result);\n    warpgroup::sync(kBarrier + w);",
        "warpgroup::store(place, result);",
        r"RACE at ",
    ),
    in_dq(
        "dq_is_overwritten_while_it_is_stored",
        "tma::store_async_read_wait<0>();",
        "",
        r"RACE at |bulk_wait_read is missing",
    ),
    in_dq(
        "dq_rows_overwrite_those_in_use",
        "rows.wait_empty(rows_at);",
        "",
        r"RACE at |arriv|bytes|phase",
    ),
    in_dq(
        "dq_keys_overwrite_a_slot_in_use",
        "shared.kv_ring.wait_empty(at);",
        "",
        r"RACE at |arriv|bytes|phase",
    ),
    in_starts(
        "starts_do_not_wait_for_the_grid_before",
        "begin_dependent_grid();",
        "",
        r"PDL at [^\n]*wait_prerequisites",
        test="packed_window",
    ),
)
