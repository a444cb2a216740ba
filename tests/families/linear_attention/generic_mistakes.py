"""Mistakes planted in linear_attention's generic kernel: the simulator must find each one."""

from functools import partial

from tests.tools.planted import Mistake

FOLDER = "kernels/linear_attention/linear_attention_generic"
planted = partial(Mistake, file=f"{FOLDER}.cuh")
in_copies = partial(Mistake, file=f"{FOLDER}_copies.cuh")
at_anchors = partial(planted, program="linear_attention_anchors GENERIC=1")  # o is right
in_decays = partial(
    Mistake,
    file="kernels/linear_attention/linear_attention_decays.cuh",
    program="linear_attention GENERIC=1",  # the other takes them from there, too
)

ANCHORED = r"std::sqrt\(error / norm\) is |UNINITIALISED|is nan"
WRONG = r"\.relative\(\) is "
COPIED = r"RACE at |UNINITIALISED|in flight"
RACE = r"RACE at "
OUTSIDE = r"MEMORY at |\.relative\(\) is "

MISTAKES = (
    planted(
        "chunks_are_not_waited_for",
        "      load_async_wait<0>();\n      arch::sync_block();",
        "      arch::sync_block();",
        COPIED,
    ),
    planted(
        "chunks_are_read_before_the_others_copies_are_there",
        "      load_async_wait<0>();\n      arch::sync_block();",
        "      load_async_wait<0>();",
        COPIED,
    ),
    planted(
        "chunks_overwrite_the_stage_in_use",
        "      const int stage = step % Config::stages, rows = stream.length - token(step);",
        "      const int stage = (step + 1) % Config::stages, rows = stream.length - token(step);",
        COPIED,
    ),
    planted(
        "weights_are_read_before_all_have_written_them",
        "    arch::sync_block();  // the weights are there\n",
        "",
        RACE,
    ),
    planted(
        "dots_are_taken_of_what_has_not_come",
        "    load_async_wait<1>();  // the next chunk's copies go on\n    arch::sync_warp();\n",
        "",
        COPIED,
    ),
    planted(
        "dots_wait_for_all_but_their_own_copies",
        "    load_async_wait<1>();  // the next chunk's copies go on\n",
        "    load_async_wait<2>();\n",
        COPIED,
    ),
    planted(
        "o_is_read_before_all_lanes_have_written_it",
        "    arch::sync_warp();\n    const int64_t width",
        "    const int64_t width",
        RACE,
    ),
    planted(
        "dots_are_added_up_before_all_have_left_theirs",
        "      arch::sync_block();\n      store_dots(stream.count - 1);",
        "      store_dots(stream.count - 1);",
        RACE,
    ),
    planted(
        "later_tokens_have_weights_of_what_was_there",
        "      if constexpr (Config::outputs) zero_later_weights();\n",
        "",
        r"UNINITIALISED|RACE at |is nan",
    ),
    planted(
        "a_token_sees_those_behind_it",
        "Config::reverse ? triu(s, s, 0, 0) : tril(s, s, 0, 0)",
        "Config::reverse ? tril(s, s, 0, 0) : triu(s, s, 0, 0)",
        WRONG,
    ),
    planted(
        "the_state_is_added_before_it_has_decayed",
        "    mul(state, state, arch::exp2_approx(decays.total));\n",
        "",
        WRONG,
    ),
    at_anchors(
        "a_state_is_left_once_it_has_changed",
        "    if constexpr (!Config::reverse) pass_anchor_of(step);\n    store_dots(step - 1);\n",
        "    store_dots(step - 1);\n",
        ANCHORED,
    ),
    at_anchors(
        "in_reverse_an_anchor_is_the_chunk_before",
        "    if constexpr (Config::reverse) pass_anchor_of(step);\n",
        "    if constexpr (Config::reverse) pass_anchor_of(step + 1);\n",
        ANCHORED,
    ),
    at_anchors(
        "other_columns_leave_the_first_ones_anchors",
        "token(step), value_part(), state);\n",
        "token(step), 0, state);\n",
        ANCHORED,
    ),
    in_decays(
        "decays_are_taken_before_they_are_the_tokens",
        "if (arch::lane_id() >= delta) sum += before;",
        "if (arch::lane_id() > delta) sum += before;",
        WRONG,
    ),
    in_decays(
        "rows_are_not_brought_back_to_their_own_decay",
        "by_factors ? arch::exp2_approx(from_end) * p.scale : p.scale",
        "p.scale",
        WRONG,
    ),
    in_decays(
        "exact_weights_decay_from_the_chunks_start",
        "log_from_end.data[i] = from_end;",
        "log_from_end.data[i] = since_state;",
        WRONG,
    ),
    in_copies(
        "tokens_behind_the_sequence_are_read",
        "const bool there = row() < rows;",
        "const bool there = true;",
        OUTSIDE,
    ),
    in_copies(
        "chunks_go_on_forwards_in_reverse",
        "at += reverse ? -chunk : chunk;",
        "at += chunk;",
        OUTSIDE,
    ),
)
