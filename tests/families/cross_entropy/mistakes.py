"""Mistakes planted in the kernels of cross_entropy: the simulator must find each one.

Each case changes one place, and runs the cases of the mutation tests with it, in race mode, under
one policy after the other until one notices: by a report that names the cause, or by wrong numbers
where the mistake leaves nothing else to see.
"""

from functools import partial

from tests.tools.planted import Mistake

in_row = partial(Mistake, file="kernels/cross_entropy/cross_entropy_row.cuh")
in_loss = partial(Mistake, file="kernels/cross_entropy/cross_entropy_loss.cuh")
in_rows = partial(Mistake, file="kernels/cross_entropy/cross_entropy_rows.cuh")
in_stream = partial(Mistake, file="kernels/cross_entropy/cross_entropy_stream.cuh")
in_two_pass = partial(Mistake, file="kernels/cross_entropy/cross_entropy_two_pass.cuh")
in_reduce = partial(Mistake, file="kernels/cross_entropy/cross_entropy_reduce.cuh")
in_backward = partial(Mistake, file="kernels/cross_entropy/cross_entropy_backward.cuh")

RACE_OF_SUMS = r"RACE at cross_entropy_row.cuh:\d+"
RELEASE = "    read(x, at.stage, chunk);\n    shared.stages.release_after_loads(at);\n"
UNFENCED_LOADS = (
    r"PROXY FENCE at cross_entropy_stream.cuh:\d+: bulk_load by thread \d+ writes shared memory "
    r"[^\n]*; threads [^\n]* read it at cross_entropy_row.cuh:\d+ before, by ordinary loads"
)
WRONG = r"(loss|gradient|result|total|count):\d+: is "

MISTAKES = (
    in_row(
        "sums_are_read_before_all_have_written",
        "arch::named_barrier_sync(kSumsBarrier, warps * kWarp);",
        "",
        RACE_OF_SUMS,
    ),
    in_row(
        "one_warp_too_many_is_waited_for",
        "arch::named_barrier_sync(kSumsBarrier, warps * kWarp);",
        "arch::named_barrier_sync(kSumsBarrier, warps * kWarp + kWarp);",
        r"DEADLOCK|BARRIER",
    ),
    in_row(
        "a_maximum_of_minus_infinity",
        "least_top = -kFar;",
        "least_top = -kInfinity;",
        WRONG,
    ),
    in_row(
        "a_sum_is_not_rescaled",
        "total *= Powers::rescaled(own, top);",
        "",
        WRONG,
    ),
    in_rows(
        "sums_of_other_blocks_are_read_before_they_have_come",
        "  cluster::sync();\n",
        "",
        r"RACE at cross_entropy_rows.cuh:\d+.* of rank 1 write it",
    ),
    in_rows(
        "a_block_is_written_to_that_may_not_run_yet",
        "  cluster::wait();\n  if (lane < cluster::blocks()) {",
        "  if (lane < cluster::blocks()) {",
        r"BARRIER at cross_entropy_rows.cuh:\d+.* arrives twice at the cluster's barrier",
    ),
    in_row(
        "a_maximum_that_is_far_although_the_row_is_not",
        "least_top = -kFar;",
        "least_top = -3e38f;",
        WRONG,
    ),
    in_rows(
        "sums_of_a_far_row_come_while_others_are_read",
        "    if constexpr (Config::in_cluster) cluster::arrive();\n    const far_row",
        "    const far_row",
        r"BARRIER at cross_entropy_rows.cuh:\d+.* waits for the cluster's barrier without",
    ),
    in_loss(
        "sums_of_a_far_row_lie_where_others_are_read",
        "combine(again, shared, 1,",
        "combine(again, shared, 0,",
        RACE_OF_SUMS,
    ),
    in_two_pass(
        "sums_of_a_far_row_lie_where_others_are_read",
        "combine(again, shared, 1,",
        "combine(again, shared, 0,",
        RACE_OF_SUMS,
    ),
    in_two_pass(
        "the_first_step_is_not_gone_back_over",
        "first >= 0; first -= step",
        "first >= step; first -= step",
        WRONG,
    ),
    in_two_pass(
        "an_ignored_row_hands_in_no_loss",
        "if (thread == 0) hand_in_loss(p, r, 0.0f);",
        "if (thread == 0 && p.loss != nullptr) arch::store_global(p.loss + r, 0.0f);",
        r"LIVELOCK at cross_entropy_row.cuh",
    ),
    in_stream(
        "chunks_of_a_far_row_are_not_released",
        "      if (gradient != nullptr) row.release_chunks(at, kept, chunks);\n",
        "",
        r"RACE|MBARRIER|DEADLOCK|" + WRONG,
    ),
    in_stream(
        "chunks_of_a_far_row_are_released_before_they_have_come",
        "      shared.stages.wait_full(at);\n      shared.stages.release_after_loads(at);\n",
        "      shared.stages.release_after_loads(at);\n",
        r"RACE|MBARRIER|DEADLOCK|" + WRONG,
    ),
    in_rows(
        "a_block_does_not_arrive",
        "if constexpr (Config::in_cluster) cluster::arrive();\n  const int64_t r",
        "if (Config::in_cluster && arch::block_x() == 0) cluster::arrive();\n  const int64_t r",
        r"BARRIER at cross_entropy_rows.cuh:\d+.* waits for the cluster's barrier without",
    ),
    in_rows(
        "sums_go_to_the_first_block_alone",
        "if (lane < cluster::blocks()) {",
        "if (lane < 1) {",
        r"UNINITIALISED at cross_entropy_rows.cuh:\d+.* of rank 1",
    ),
    in_stream(
        "the_next_row_overwrites_sums_that_are_read",
        "half ^= 1;",
        "",
        RACE_OF_SUMS,
    ),
    in_stream(
        "a_chunk_is_read_before_it_has_come",
        "      shared.stages.wait_full(at);\n      include_chunk(",
        "      include_chunk(",
        r"RACE|" + WRONG,
    ),
    in_stream(
        "a_chunk_that_comes_again_is_read_before",
        "      shared.stages.wait_full(at);\n      store_chunk(",
        "      store_chunk(",
        r"RACE|" + WRONG,
    ),
    in_stream(
        "a_chunk_is_overwritten_while_it_is_read",
        "shared.stages.wait_empty(at);",
        "",
        r"RACE|MBARRIER|DEADLOCK|" + WRONG,
    ),
    in_stream(
        "a_chunk_is_released_before_it_is_read",
        RELEASE,
        "    shared.stages.release_after_loads(at);\n    read(x, at.stage, chunk);\n",
        r"RACE|" + WRONG,
    ),
    in_stream(
        "lanes_are_not_waited_for",
        RELEASE,
        RELEASE.replace(
            "shared.stages.release_after_loads(at)",
            "arch::fence_async_proxy();\n"
            "    if (arch::lane_id() == 0) shared.stages.release_after_mma(at)",
        ),
        r"RACE|PROXY FENCE",
    ),
    # What made gradients wrong on an H200: the next chunk's copy overtook the loads of this one.
    in_stream(
        "a_chunk_is_released_as_if_only_wgmma_had_read_it",
        RELEASE,
        RELEASE.replace(
            "shared.stages.release_after_loads(at)",
            "arch::sync_warp();\n    if (arch::lane_id() == 0) shared.stages.release_after_mma(at)",
        ),
        UNFENCED_LOADS,
    ),
    in_stream(
        "only_the_lane_that_releases_fences",
        RELEASE,
        RELEASE.replace(
            "shared.stages.release_after_loads(at)",
            "arch::sync_warp();\n    if (arch::lane_id() == 0) {\n"
            "      arch::fence_async_proxy();\n      shared.stages.release_after_mma(at);\n    }",
        ),
        UNFENCED_LOADS,
    ),
    in_stream(
        "a_chunk_that_stays_is_released",
        "if (chunk < chunks.again) shared.stages.release_after_loads(at);",
        "shared.stages.release_after_loads(at);",
        r"RACE|MBARRIER|DEADLOCK|" + WRONG,
    ),
    in_stream(
        "too_few_warps_make_a_chunk_empty",
        "shared.stages.init(Config::warps)",
        "shared.stages.init(Config::warps - 1)",
        r"RACE|MBARRIER|DEADLOCK|" + WRONG,
    ),
    in_stream(
        "more_bytes_are_expected_than_come",
        "shared.stages.expect(at, bytes);",
        "shared.stages.expect(at, bytes + 16);",
        r"MBARRIER|DEADLOCK|RACE",
    ),
    in_stream(
        "ignored_rows_are_loaded_all_the_same",
        "    if (targets.next(r) == p.ignore_index) continue;\n",
        "    targets.next(r);\n",
        r"RACE|DEADLOCK|MBARRIER|BULK COPY|" + WRONG,
    ),
    in_stream(
        "barriers_are_used_before_they_are",
        "  arch::sync_block();\n",
        "",
        r"RACE|MBARRIER",
    ),
    in_row(
        "a_loss_of_0_looks_like_an_empty_box",
        "std::bit_cast<unsigned>(loss + 0.0f) ^ kTurnedSign",
        "std::bit_cast<unsigned>(loss + 0.0f)",
        r"LIVELOCK at cross_entropy_row.cuh",
    ),
    in_row(
        "mailboxes_are_left_full",
        "words[i] = arch::atomic_exchange(box, 0);",
        "words[i] = arch::load_acquire(box);",
        r"mailboxes:\d+: is ",
    ),
    in_row(
        "losses_are_added_up_before_all_have_come",
        "} while (!complete);",
        "} while (false);",
        r"(total|mailboxes):\d+: is ",
    ),
    in_rows(
        "a_loss_is_not_handed_in",
        "if (first) hand_in_loss(p, r, 0.0f);",
        "if (first && p.loss != nullptr) arch::store_global(p.loss + r, 0.0f);",
        r"LIVELOCK at cross_entropy_row.cuh",
    ),
    in_rows(
        "two_rows_add_up",
        "place.row != p.rows - 1",
        "place.row < p.rows - 2",
        r"LIVELOCK|" + WRONG,
    ),
    in_row(
        "a_bad_target_is_not_told",
        "if (column < 0 && p.outside != nullptr) arch::store_global(p.outside, load_target(p, r));",
        "",
        r"outside:0: is 0",
    ),
    in_reduce(
        "warps_are_added_before_all_have_written",
        "  arch::sync_block();\n",
        "",
        r"RACE at cross_entropy_reduce.cuh",
    ),
    in_backward(
        "nothing_times_infinity_is_not_a_number",
        "value == 0.0f ? value : value * factor",
        "value * factor",
        WRONG,
    ),
    in_backward(
        "rows_behind_a_factor_of_1_are_left",
        "      if (p.dloss_stride == 0) return;  // so it is for every row\n      continue;",
        "      return;",
        WRONG,
    ),
)
