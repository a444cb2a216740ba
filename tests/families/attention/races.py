"""The mistakes of synchronisation in attention that race mode sees under every policy.

Without it most give the right numbers under all.
"""

from tests.families.attention.mistakes import PV, in_kernel, in_producer, planted

LOADED = r"RACE at [^\n]*wgmma by [^\n]* reads [^\n]*tma_load by [^\n]*\n  missing: [^\n]*"
STORED = r"RACE at [^\n]*tma_store by [^\n]* reads [^\n]*store_matrix by "
READ = r"RACE at [^\n]*threads [^\n]* read shared memory[^\n]* thread \d+ writes it at "
FLAGGED = (
    r"RACE at [^\n]* thread \d+ reads shared memory[^\n]* threads 128, 160, [^\n]* write it at "
)
CRASH = "|ends by signal"  # of what an unwritten item says

RACES = (
    planted(
        "tile_is_stored_unfenced",
        "warpgroup::store(staging, result);",
        "warpgroup::store_unfenced(staging, result);",
        r"PROXY FENCE at attention_consumer.cuh:\d+ [^\n]*tma_store by [^\n]* store_matrix by "
        r"threads [^\n]* writes[^\n]*no proxy fence in between\n  missing: fence_async_proxy",
    ),
    planted(
        "one_warp_alone_fences_the_tile",
        "warpgroup::store(staging, result);",
        "warpgroup::store_unfenced(staging, result);\n"
        "    if (arch::warp_id() % 4 == 0) arch::fence_async_proxy();",
        r"PROXY FENCE at [^\n]* store_matrix by threads 160-255",
    ),
    in_kernel(
        "the_ones_are_not_fenced",
        "block::set_ones(v)",
        "block::map_unfenced([] { return 1.0f; }, v.ones)",
        r"PROXY FENCE at [^\n]*wgmma by [^\n]* write it [^\n]* by ordinary stores",
    ),
    planted(
        "values_are_released_before_their_product_is_done",
        "warpgroup::mma_async_wait<0>();\n    release_v();\n    copy(weights, s);",
        "release_v();\n    warpgroup::mma_async_wait<0>();\n    copy(weights, s);",
        LOADED + "wgmma_wait",
    ),
    planted(
        "keys_are_released_before_their_product_is_done",
        "order::arrive(w);\n    warpgroup::mma_async_wait<0>();\n    release_k();",
        "order::arrive(w);\n    release_k();\n    warpgroup::mma_async_wait<0>();",
        LOADED + "wgmma_wait",
    ),
    planted(
        "queries_are_not_waited_for",
        "shared.q_ring.wait_full(q_at);",
        "",
        READ + CRASH + r"|nothing orders the end of phase 0",
    ),
    planted(
        "queries_are_released_before_their_tile_is_stored",
        "if (signals()) {\n      tma::store_async_read_wait<0>();\n      arrive(",
        "if (signals()) {\n      arrive(",
        r"RACE at [^\n]*tma_(load|store) by [^\n]*bulk_wait_read|RACE at [^\n]*tma_load by ",
    ),
    in_producer(
        "queries_overwrite_those_in_use",
        "shared.q_ring.wait_empty(q_at);",
        "",
        r"RACE at [^\n]*tma_(load|store) by [^\n]*bulk_wait_read|RACE at [^\n]*tma_load by ",
    ),
    planted(
        "the_item_is_read_before_its_queries_are_there",
        "shared.q_ring.wait_full(q_at);\n      tile = read();",
        "tile = read();\n      shared.q_ring.wait_full(q_at);",
        READ + CRASH,
    ),
    planted(
        "one_warp_waits_for_the_item",
        "shared.q_ring.wait_full(q_at);",
        "if (arch::warp_id() % 4 == 0) shared.q_ring.wait_full(q_at);",
        READ + CRASH,
    ),
    in_producer(
        "the_item_is_written_after_its_arrival",
        "shared.q_ring.wait_empty(q_at);\n      shared.items[number % 2] = item;\n"
        "      if (item.tile.m == attention_item::kEnd) {\n"
        "        arrive(shared.q_ring.full[q_at.stage]);\n",
        "shared.q_ring.wait_empty(q_at);\n"
        "      if (item.tile.m != attention_item::kEnd) shared.items[number % 2] = item;\n"
        "      if (item.tile.m == attention_item::kEnd) {\n"
        "        arrive(shared.q_ring.full[q_at.stage]);\n"
        "        shared.items[number % 2] = item;\n",
        READ + CRASH,
    ),
    planted(
        "the_overflow_flag_is_written_after_its_arrival",
        "shared.overflowed[number % 2][w * 4 + arch::warp_id() % 4] = any;\n"
        "      arrive(shared.overflow_checked[number % 2]);",
        "arrive(shared.overflow_checked[number % 2]);\n"
        "      shared.overflowed[number % 2][w * 4 + arch::warp_id() % 4] = any;",
        FLAGGED,
    ),
    in_producer(
        "the_overflow_flags_are_not_waited_for",
        "wait(shared.overflow_checked[item % 2], item / 2 & 1);",
        "",
        FLAGGED,
    ),
    planted(
        "a_consumer_that_is_a_tile_ahead_arrives_for_another",
        "arrive(shared.overflow_checked[number % 2]);",
        "arrive(shared.overflow_checked[0]);",
        FLAGGED + "|DEADLOCK|phase",
    ),
    in_producer(
        "the_overflow_flags_of_the_running_tile_are_read",
        "for (const uint32_t warp : shared.overflowed[item % 2])",
        "for (const uint32_t warp : shared.overflowed[(item + 1) % 2])",
        FLAGGED,
    ),
    planted(
        "values_are_waited_for_at_the_wrong_stage",
        "shared.v_ring.wait_full(v_at);\n    " + PV + "\n    order::arrive(w);",
        "shared.v_ring.wait_full(k_at);\n    " + PV + "\n    order::arrive(w);",
        LOADED + "whoever reads",
    ),
    planted(
        "the_tile_is_stored_before_all_have_written_it",
        "    warpgroup::sync(kBarrier + w);\n    if (signals()) {\n      tma::store_async(",
        "    if (signals()) {\n      tma::store_async(",
        STORED + r"[^\n]*\n  missing: a barrier between the last write and the copy",
    ),
    planted(
        "warps_alone_meet_before_the_tile_is_stored",
        "    warpgroup::sync(kBarrier + w);\n    if (signals()) {\n      tma::store_async(",
        "    arch::sync_warp();\n    if (signals()) {\n      tma::store_async(",
        STORED + r"threads 160-255",
    ),
    in_kernel(
        "semaphores_are_used_without_a_barrier",
        "arch::sync_block();",
        "",
        r"RACE at [^\n]*mbarrier_init by thread 0 writes [^\n]*\n  missing: sync_block"
        r"|no mbarrier was initialised",
    ),
    planted(
        "scores_are_read_before_they_are_there",
        "warpgroup::mma_async_wait<1>();",
        "warpgroup::mma_async_wait<2>();",
        r"RACE at [^\n]* read accumulator 0, which the product asked for at attention_consumer.cuh",
    ),
)
