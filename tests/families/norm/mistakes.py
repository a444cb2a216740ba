"""Mistakes of synchronisation, planted in the norms' kernels: the simulator must find each one.

Each case changes one place, and runs the cases of the mutation tests with it, in race mode, under
one policy after the other until one notices: by a report that names the cause, or by wrong numbers
where the mistake leaves nothing else to see.
"""

from functools import partial

from tests.tools.planted import Mistake

in_row = partial(Mistake, file="kernels/norm/row.cuh")
in_forward = partial(Mistake, file="kernels/norm/norm_forward.cuh")
in_backward = partial(Mistake, file="kernels/norm/norm_backward.cuh")
in_reduce = partial(Mistake, file="kernels/norm/norm_reduce.cuh")
in_pipeline = partial(Mistake, file="kernels/norm/norm_backward_pipelined.cuh")
in_medium = partial(Mistake, file="kernels/norm/norm_backward_medium.cuh")
in_few = partial(Mistake, file="kernels/norm/norm_backward_few.cuh")
in_narrow = partial(Mistake, file="kernels/norm/norm_backward_narrow.cuh")
in_lanes = partial(Mistake, file="kernels/norm/narrow_row.cuh")
in_dropout = partial(Mistake, file="kernels/norm/dropout.cuh")

RACE_OF_SUMS = r"RACE at row.cuh:\d+[^\n]* shared memory "
WRONG = r"(y|sum|mean|rstd|dx|dresidual|dweight|dbias):"

MISTAKES = (
    in_row(
        "sums_are_read_before_all_have_written",
        "arch::named_barrier_sync(barrier, warps * kWarp);",
        "",
        RACE_OF_SUMS,
    ),
    in_row(
        "only_each_warp_meets_before_sums_are_read",
        "arch::named_barrier_sync(barrier, warps * kWarp);",
        "arch::sync_warp();",
        RACE_OF_SUMS,
    ),
    in_row(
        "the_next_sum_overwrites_one_that_is_read",
        "half ^= 1;",
        "",
        RACE_OF_SUMS,
    ),
    in_row(
        "one_warp_too_many_is_waited_for",
        "arch::named_barrier_sync(barrier, warps * kWarp);",
        "arch::named_barrier_sync(barrier, warps * kWarp + kWarp);",
        r"DEADLOCK|BARRIER",
    ),
    in_row(
        "all_groups_meet_at_one_barrier",
        "arch::named_barrier_sync(barrier, warps * kWarp);",
        "arch::named_barrier_sync(1, warps * kWarp);",
        r"RACE|BARRIER|DEADLOCK",
    ),
    in_row(
        "a_warp_of_one_row_waits_alone",
        "if (warps == 1) return;",
        "if (warp > 0) return;",
        r"DEADLOCK|RACE|BARRIER",
    ),
    in_row(
        "a_row_is_read_before_it_has_come",
        "arch::cp_async_wait<Stages - 2>();",
        "",
        r"RACE|" + WRONG,
    ),
    in_row(
        "a_row_too_many_may_be_on_its_way",
        "arch::cp_async_wait<Stages - 2>();",
        "arch::cp_async_wait<Stages - 1>();",
        r"RACE|" + WRONG,
    ),
    in_row(
        "rows_are_not_committed",
        "    row += stride;\n    arch::cp_async_commit();",
        "    row += stride;",
        r"RACE|" + WRONG,
    ),
    in_forward(
        "columns_past_the_last_count",
        "    right_fill(s, s, columns, 0.0f);\n",
        "",
        WRONG,
    ),
    in_forward(
        "every_piece_of_a_row_takes_the_weights_of_the_first",
        "take_piece(weight, parameters.weight, i);",
        "take_piece(weight, parameters.weight, 0);",
        r"y:",
    ),
    in_backward(
        "groups_are_added_before_all_have_written",
        "if (groups > 1) arch::sync_block();",
        "",
        r"RACE at norm_backward.cuh",
    ),
    in_backward(
        "a_group_leaves_before_the_barrier",
        "  if (groups > 1) arch::sync_block();\n  if (group > 0) return;",
        "  if (group > 0) return;\n  if (groups > 1) arch::sync_block();",
        r"RACE|DEADLOCK|BARRIER",
    ),
    in_reduce(
        "partial_sums_are_added_before_all_have_written",
        "  arch::sync_block();\n  if (warp != 0) return;",
        "  if (warp != 0) return;",
        r"RACE at norm_reduce.cuh",
    ),
    in_backward(
        "two_groups_share_their_sums",
        "group_sum<Config::sums> add{shared[group], warp, warps, 1 + group};",
        "group_sum<Config::sums> add{shared[0], warp, warps, 1 + group};",
        RACE_OF_SUMS,
    ),
    in_backward(
        "the_gradient_of_the_sum_stays_at_its_first_row",
        "        dsums.advance();\n",
        "",
        r"(dx|dresidual):",
    ),
    in_pipeline(
        "sums_are_taken_before_all_were_left",
        "    wait(scratch.complete[taken.stage], taken.phase);\n",
        "",
        r"RACE at norm_backward_pipelined.cuh",
    ),
    in_pipeline(
        "a_warp_does_not_say_that_it_has_left_its_sums",
        "      arrive(scratch.complete[left.stage]);\n",
        "",
        r"DEADLOCK",
    ),
    in_pipeline(
        "one_lane_arrives_while_others_still_read",
        "    arch::sync_warp();  // the arrival also",
        "    // the arrival also",
        r"RACE at norm_backward_pipelined.cuh",
    ),
    in_pipeline(
        "sums_of_three_rows_at_a_time",
        "int kRows = 4;",
        "int kRows = 3;",
        r"RACE at norm_backward_pipelined.cuh",
    ),
    in_pipeline(
        "the_next_row_is_read_before_it_has_come",
        "      arch::cp_async_wait<kSlots - 2>();\n",
        "",
        r"RACE|" + WRONG,
    ),
    in_pipeline(
        "the_first_row_is_read_before_it_has_come",
        "  arch::cp_async_wait<kSlots - 1>();\n",
        "  arch::cp_async_wait<kSlots>();\n",
        r"RACE|" + WRONG,
    ),
    in_pipeline(
        "a_slot_is_asked_for_again_while_it_is_read",
        "    rows.request(at);\n    at = next;",
        "    rows.request(next);\n    at = next;",
        r"RACE|" + WRONG,
    ),
    in_medium(
        "weights_are_read_before_all_have_come",
        "  arch::sync_block();\n  group_sum",
        "  group_sum",
        r"RACE|UNINITIALISED|" + WRONG,
    ),
    in_medium(
        "sums_of_groups_overwrite_rows_that_others_read",
        "  arch::sync_block();  // all groups have read their last rows\n",
        "",
        r"RACE",
    ),
    in_medium(
        "groups_share_their_sums_of_a_row",
        "add{shared[group], warp, warps, 1 + group};",
        "add{shared[0], warp, warps, 1 + group};",
        r"RACE|DEADLOCK|BARRIER",
    ),
    in_medium(
        "the_next_medium_row_is_read_before_it_has_come",
        "    arch::cp_async_wait<kSlots - 2>();\n",
        "",
        r"RACE|" + WRONG,
    ),
    in_few(
        "the_sums_of_columns_are_added_before_all_have_written",
        "  arch::sync_block();\n  // A warp adds",
        "  // A warp adds",
        r"RACE at norm_backward_few.cuh",
    ),
    in_few(
        "warps_without_columns_stay_in_the_row",
        "  if (warp >= layout.warps) return;\n",
        "",
        r"DEADLOCK|RACE|BARRIER",
    ),
    in_few(
        "the_columns_end_after_one_round_of_rows",
        "for (int first = warp; first < rows; first += kFewRows * warps) {",
        "if (const int first = warp; first < rows) {",
        r"(dweight|dbias):",
    ),
    in_few(
        "dbias_is_left_where_dweight_is",
        "store(parts[warps + warp], total.dbias);",
        "store(parts[warp], total.dbias);",
        r"UNINITIALISED at norm_backward_few.cuh",
    ),
    in_narrow(
        "narrow_sums_are_added_before_all_have_written",
        "  arch::sync_block();\n  const int column",
        "  const int column",
        r"RACE at norm_backward_narrow.cuh",
    ),
    in_lanes(
        "a_row_joins_in_the_sum_of_its_neighbour",
        "for (int step = lanes >> 1; step > 0; step >>= 1)",
        "for (int step = lanes; step > 0; step >>= 1)",
        WRONG,
    ),
    in_dropout(
        "neighbours_share_a_number",
        "numbers.word[j] >= drop_below",
        "numbers.word[0] >= drop_below",
        r"sum:",
    ),
)
