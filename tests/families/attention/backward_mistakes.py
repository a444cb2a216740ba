"""The mistakes of synchronisation in attention's backward, which race mode sees."""

from functools import partial

from tests.tools.planted import Mistake

planted = partial(Mistake, file="kernels/attention/attention_backward_consumer.cuh")
in_producer = partial(Mistake, file="kernels/attention/attention_backward_producer.cuh")
in_wide = partial(Mistake, file="kernels/attention/attention_backward_wide_consumer.cuh")
in_starts = partial(Mistake, file="kernels/attention/attention_backward_sequences.cuh")

MEET = "arch::named_barrier_sync(kBarrier, kThreads);"

MISTAKES = (
    planted(
        "rows_are_not_waited_for",
        "shared.row_ring.wait_full(at);",
        "",
        r"RACE at [^\n]*wgmma by |UNINITIALISED|phase",
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
        "        attention_dq_rows::load_shared(shared.dq_factors[at.stage] + dq_place());\n"
        "    show_ds();\n",
        "show_ds();\n"
        "    const auto next_dq_rows =\n"
        "        attention_dq_rows::load_shared(shared.dq_factors[at.stage] + dq_place());\n",
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
    in_producer(
        "queries_overwrite_a_slot_in_use",
        "shared.row_ring.wait_empty(at);",
        "",
        r"RACE at [^\n]*|arriv|bytes|phase",
    ),
    in_wide(
        "wide_weights_are_not_waited_for",
        f"arch::fence_async_proxy();\n    {MEET}",
        "arch::fence_async_proxy();",
        r"RACE at ",
    ),
    in_wide(
        "wide_weights_are_not_fenced",
        f"arch::fence_async_proxy();\n    {MEET}",
        MEET,
        r"PROXY FENCE at ",
    ),
    in_wide(
        "wide_rows_are_released_before_the_products_are_done",
        "warpgroup::mma_async_wait<1>(dk, dv, left_dq);\n"
        "    // All lanes have read the rows' numbers: they have met at the barrier.\n"
        "    if (arch::lane_id() == 0) shared.row_ring.release_after_mma(here);\n",
        "if (arch::lane_id() == 0) shared.row_ring.release_after_mma(here);\n"
        "    warpgroup::mma_async_wait<1>(dk, dv, left_dq);\n",
        r"RACE at [^\n]*wgmma by ",
    ),
    in_wide(
        "wide_gradients_are_stored_before_both_halves_are_there",
        f"W * kColumns), result);\n    {MEET}\n    if (arch::thread_id() % 128 != 0) return;",
        "W * kColumns), result);\n    if (arch::thread_id() % 128 != 0) return;",
        r"RACE at ",
    ),
    in_starts(
        "starts_do_not_wait_for_the_grid_before",
        "begin_dependent_grid();",
        "",
        r"PDL at [^\n]*wait_prerequisites",
        test="packed_window",
    ),
)
