"""The mistakes of synchronisation in attention's backward, which race mode sees."""

from functools import partial

from tests.tools.planted import Mistake

planted = partial(Mistake, file="kernels/attention/attention_backward_consumer.cuh")
in_producer = partial(Mistake, file="kernels/attention/attention_backward_producer.cuh")

MISTAKES = (
    planted(
        "ds_is_not_waited_for",
        "shared.ds_ring.wait_full(dq_at);",
        "",
        r"RACE at [^\n]*wgmma by [^\n]* reads [^\n]*store_matrix by ",
    ),
    planted(
        "integers_of_dq_are_not_fenced",
        "arch::fence_async_proxy();\n    arch::sync_warp();",
        "arch::sync_warp();",
        r"PROXY FENCE at [^\n]*bulk_store_add by ",
    ),
    planted(
        "integers_of_dq_overwrite_those_on_their_way",
        "if (lane == 0) tma::store_async_read_wait<0>();",
        "",
        r"RACE at [^\n]*bulk_store_add by ",
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
)
