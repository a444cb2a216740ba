"""The mistakes of synchronisation in attention that some policies show without race mode."""

from functools import partial

from tests.tools.planted import Mistake

PV = "issue_pv(weights, shared.v[v_at.stage]);"  # the product of a step
planted = partial(Mistake, file="kernels/attention/attention_consumer.cuh")
in_producer = partial(Mistake, file="kernels/attention/attention_producer.cuh")
in_walk = partial(Mistake, file="kernels/attention/attention_walk.cuh")
in_kernel = partial(Mistake, file="kernels/attention/attention_forward.cuh")
in_tile = partial(Mistake, file="kernels/attention/attention_tile.cuh")
in_scheduler = partial(Mistake, file="kittens/pipeline/tile_scheduler.cuh")

# Tests of attention_case.cu, for mistakes that some policies, or tests before these, do not show;
# and that of which the manual quotes reports.
SHORT, LONG = "tiles_of_two_blocks", "all_of_the_keys_without_lse"
WINDOWED, BOUNDED = "windows_of_a_dynamic_schedule", "keys_with_bounds"
WRONG_NUMBERS = r"worst is \S+, not within"
CHANGED_ROWS = r"changed is \d+, not 0"

RINGS = (
    in_producer(
        "keys_overwrite_a_slot_in_use",
        "shared.k_ring.wait_empty(at);",
        "",
        r"arriv|bytes|phase",
    ),
    planted(
        "values_are_not_waited_for",
        "shared.v_ring.wait_full(v_at);\n    " + PV + "\n    order::arrive(w);",
        PV + "\n    order::arrive(w);",
        r"more arrivals than",
        test=SHORT,
    ),
    planted(
        "phase_of_the_queries_is_wrong",
        "order::start(w);",
        "q_at = {0, 1};\n    order::start(w);",
        WRONG_NUMBERS + r"|phase|DEADLOCK",
    ),
    in_producer(
        "too_few_bytes_are_expected",
        "shared.v_ring.expect(at, p.v.bytes());",
        "shared.v_ring.expect(at, p.v.bytes() - 128);",
        r"bytes",
    ),
    in_producer(
        "too_many_bytes_are_expected",
        "shared.v_ring.expect(at, p.v.bytes());",
        "shared.v_ring.expect(at, p.v.bytes() + 128);",
        r"DEADLOCK[^$]*128 bytes",
    ),
    planted(
        "every_thread_releases_the_slot",
        "if (signals()) shared.k_ring.release_after_mma(k_at);",
        "shared.k_ring.release_after_mma(k_at);",
        r"arriv",
    ),
    planted(
        "one_consumer_never_releases",
        "if (signals()) shared.v_ring.release_after_mma(v_at);",
        "if (signals() && w != 1) shared.v_ring.release_after_mma(v_at);",
        r"DEADLOCK[^$]*1 of 3 arrivals",
    ),
    planted(
        "blocks_are_skipped_before_all_have_waited",
        "    meet();\n    release_k();\n    release_v();\n",
        "    release_k();\n    release_v();\n    meet();\n",
        r"phase",
        test=SHORT,
    ),
    planted(
        "a_consumer_without_keys_does_not_meet",
        "skip_block([&] { warpgroup::sync(kBarrier + w); });",
        "skip_block([] {});",
        r"phase",
        test=SHORT,
    ),
)

QUERIES = (
    planted(
        "queries_are_never_released",
        "if (Config::q_stages > 1 && number > 0) release_q();\n    --j;",
        "--j;",
        r"DEADLOCK[^$]*3 of 3 arrivals",
    ),
    planted(
        "consumers_without_rows_do_not_release_the_queries",
        "if (Config::q_stages > 1 && number > 0) release_q();\n        // All",
        "// All",
        r"DEADLOCK[^$]*arrivals",
    ),
    planted(
        "queries_are_released_before_there_were_any",
        "if (Config::q_stages > 1 && number > 0) release_q();\n    --j;",
        "release_q();\n    --j;",
        r"arriv|phase",
        test=LONG,
    ),
    planted(
        "the_running_tile_is_released",
        "(q_at.stage + 1) % Config::q_stages",
        "q_at.stage",
        r"arriv|phase|DEADLOCK",
    ),
    planted(
        "every_thread_releases_the_queries",
        "if (signals()) {\n      tma::store_async_read_wait<0>();\n      arrive(",
        "{\n      tma::store_async_read_wait<0>();\n      arrive(",
        r"arriv",
    ),
    in_producer(
        "the_end_is_not_announced",
        "arrive(shared.q_ring.full[q_at.stage]);",
        "",
        r"DEADLOCK",
    ),
)

PRODUCTS = (
    planted(
        "no_fence_before_the_first_product",
        "warpgroup::mma_fence();\n    if constexpr (std::same_as<S, scores>)",
        "if constexpr (std::same_as<S, scores>)",
        r"wgmma_fence",
    ),
    planted(
        "scores_are_read_while_in_flight",
        "warpgroup::mma_async_wait<1>();",
        "warpgroup::mma_async_wait<2>();",
        r"accumulator \d+ while the product [^\n]* was under way",
    ),
    planted(
        "output_is_scaled_while_in_flight",
        "warpgroup::mma_async_wait<0>();\n    release_v();\n    copy(weights, s);\n",
        "copy(weights, s);\n    release_v();\n",
        r"accumulator \d+ while the product [^\n]* was under way",
    ),
    planted(
        "sums_are_read_while_in_flight",
        "warpgroup::mma_async_wait<0>();\n    release_v();\n    softmax.rescale_if_large",
        "release_v();\n    softmax.rescale_if_large",
        r"accumulator \d+ while the product [^\n]* was under way",
    ),
    planted(
        "output_is_finished_while_in_flight",
        "finish_row_sum(softmax.l);\n    warpgroup::mma_async_wait<0>();",
        "finish_row_sum(softmax.l);",
        r"accumulator \d+ while the product [^\n]* was under way",
    ),
    planted(
        "the_turn_is_not_passed_on",
        PV + "\n    order::arrive(w);",
        PV,
        r"DEADLOCK[^$]*barrier",
    ),
    planted(
        "nobody_has_the_first_turn",
        "order::start(w);",
        "",
        r"DEADLOCK[^$]*barrier",
    ),
    planted(
        "turns_are_not_taken_where_blocks_are_skipped",
        "    skip_block([&] {\n      order::wait(w);\n      order::arrive(w);\n    });\n",
        "    skip_block([&] { warpgroup::sync(kBarrier + w); });\n",
        r"DEADLOCK[^$]*barrier",
    ),
    planted(
        "a_consumer_without_keys_takes_a_turn_more",
        "skip_block([&] { warpgroup::sync(kBarrier + w); });",
        "skip_block();",
        r"DEADLOCK[^$]*barrier",
    ),
)

STORES = (
    planted(
        "the_tile_is_stored_before_all_have_written",
        "    warpgroup::sync(kBarrier + w);\n    if (signals()) {\n      tma::store_async(",
        "    if (signals()) {\n      tma::store_async(",
        WRONG_NUMBERS,
        test=SHORT,
    ),
    planted(
        "a_block_ends_before_its_tile_is_read",
        "order::finish(w);\n    if (signals()) tma::store_async_read_wait<0>();",
        "order::finish(w);",
        r"exit|ends",
    ),
    in_kernel(
        "semaphores_are_used_before_they_are_there",
        "arch::sync_block();",
        "",
        r"init",
        test=SHORT,
    ),
)

AGAIN = (
    in_kernel(
        "only_one_warp_of_each_consumer_is_counted",
        "init_semaphore(checked, 4 * Config::consumers);",
        "init_semaphore(checked, Config::consumers);",
        r"arriv|phase",
    ),
    in_kernel(
        "a_check_too_many_is_counted",
        "init_semaphore(checked, 4 * Config::consumers);",
        "init_semaphore(checked, 4 * Config::consumers + 1);",
        r"DEADLOCK[^$]*\d of 13 arrivals",
    ),
    planted(
        "all_lanes_arrive_with_the_overflow_flag",
        "if (arch::lane_id() == 0) {\n      shared.overflowed",
        "{\n      shared.overflowed",
        r"arriv",
    ),
    in_producer(
        "overflow_flags_are_waited_for_by_the_wrong_phase",
        "wait(shared.overflow_checked[item % 2], item / 2 & 1);",
        "wait(shared.overflow_checked[item % 2], ~(item / 2) & 1);",
        r"phase|DEADLOCK",
    ),
    planted(
        "rows_are_stored_before_all_know_that_the_tile_has_landed",
        "if (signals()) tma::store_async_wait<0>();\n    warpgroup::sync(kBarrier + w);",
        "if (signals()) tma::store_async_wait<0>();",
        WRONG_NUMBERS,
        test=BOUNDED,
    ),
    in_producer(
        "the_last_tile_is_not_checked",
        "checked < number - (walk.valid() ? 1 : 0)",
        "checked < number - 1",
        WRONG_NUMBERS,
        test=LONG,
    ),
    in_producer(
        "another_tile_is_given_again",
        "again.again = number - checked++;",
        "again.again = number - checked++ + 1;",
        WRONG_NUMBERS,
    ),
    in_producer(
        "an_item_overwrites_one_that_may_be_given_again",
        "shared.items[number % 2] = item;",
        "shared.items[0] = shared.items[1] = item;",
        WRONG_NUMBERS,
    ),
    planted(
        "rows_of_another_tile_are_done_again",
        "overflow_bits >> 2 * (again - 1) & 3",
        "overflow_bits >> 2 * again & 3",
        WRONG_NUMBERS,
    ),
    planted(
        "all_rows_are_stored_again",
        "if ((rows >> half & 1) == 0 || row >= tile.rows) continue;",
        "if (row >= tile.rows) continue;",
        CHANGED_ROWS,
    ),
    planted(
        "rows_are_stored_before_the_tile_has_landed",
        "if (signals()) tma::store_async_wait<0>();",
        "if (signals()) tma::store_async_read_wait<0>();",
        WRONG_NUMBERS,
        test=SHORT,
    ),
)

TILES = (
    in_scheduler(
        "the_counter_is_not_reset",
        "if (n == tiles_.count() - 1) arch::atomic_exchange(tiles_.counter, 0);",
        "",
        r"tile_counter\(\)[^\n]* is \d+, not 0",
    ),
    in_scheduler(
        "the_counter_is_reset_a_tile_early",
        "if (n == tiles_.count() - 1)",
        "if (n == tiles_.count() - 2)",
        r"tile_counter\(\)[^\n]* is \d+, not 0",
    ),
    in_scheduler(
        "a_tile_is_skipped",
        "tile_ = blocks + static_cast<unsigned>(n);",
        "tile_ = blocks + static_cast<unsigned>(n) + 1;",
        r"tile_counter\(\)[^\n]* is \d+, not 0",
    ),
)

BOUNDS = (
    in_tile(
        "keys_before_the_first_one_are_seen",
        "const int first = leftpad.numbers == nullptr ? 0 : leftpad.at(batch, 0, end);",
        "const int first = 0;",
        WRONG_NUMBERS,
        test=BOUNDED,
    ),
    in_tile(
        "keys_behind_the_last_one_are_seen",
        "const int end = seqused.numbers == nullptr ? keys : seqused.at(batch, 0, keys);",
        "const int end = keys;",
        WRONG_NUMBERS,
        test=BOUNDED,
    ),
    in_walk(
        "the_diagonal_ends_before_the_last_key",
        "return {m, head, batch, 0, first, p.rows, end - first};",
        "return {m, head, batch, 0, first, p.rows, end - first - 1};",
        WRONG_NUMBERS,
    ),
)

MISTAKES = (*RINGS, *QUERIES, *PRODUCTS, *STORES, *AGAIN, *TILES, *BOUNDS)
