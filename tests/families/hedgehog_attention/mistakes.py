"""Mistakes planted in hedgehog_attention's kernel: the simulator must find each one.

Each changes one place, and runs the program of the mutation tests with it, in race mode, under one
policy after the other until one notices: by a report that names the cause, or by wrong numbers.
"""

from functools import partial

from tests.tools.planted import Mistake

_FILE = "kernels/hedgehog_attention/hedgehog_attention"
in_consumer = partial(Mistake, file=f"{_FILE}_consumer.cuh")
in_features = partial(Mistake, file=f"{_FILE}_features.cuh")
in_tile = partial(Mistake, file=f"{_FILE}_tile.cuh")
in_window = partial(Mistake, file=f"{_FILE}_gradient_window.cuh")
in_feature_walk = partial(Mistake, file=f"{_FILE}_gradient_features.cuh")
in_base = partial(Mistake, file=f"{_FILE}_gradient_base.cuh")
in_passing = partial(Mistake, file=f"{_FILE}_state_passing.cuh")
in_gradient_tile = partial(Mistake, file=f"{_FILE}_gradient_tile.cuh")
in_rows = partial(Mistake, file=f"{_FILE}_gradient_rows.cuh")

WRONG = r"relative|CHECK"
RACE = r"RACE|PROXY|STILL|wgmma|TMA|bulk"

MISTAKES = (
    in_consumer(
        "features_are_read_before_both_have_written",
        "    meet();  // features, state and sums are there; queries and keys have been read\n",
        "",
        rf"{RACE}|{WRONG}",
    ),
    in_consumer(
        "a_state_is_published_while_it_is_read",
        "    meet();  // features, state, sums and values have been read\n",
        "",
        rf"{RACE}|{WRONG}",
    ),
    in_consumer(
        "features_overwrite_outputs_on_their_way",
        "    if (signals()) tma::store_async_read_wait<0>();\n"
        "    warpgroup::mma_async_wait<1>(x_of_keys);",
        "    warpgroup::mma_async_wait<1>(x_of_keys);",
        RACE,
    ),
    in_consumer(
        "values_of_the_second_window_are_not_awaited",
        "      wait_full(shared.v_full, step, 2);\n",
        "",
        rf"{RACE}|{WRONG}",
    ),
    in_consumer(
        "scores_are_read_before_they_are_there",
        "    warpgroup::mma_async_wait<0>(previous, own);\n",
        "",
        rf"{RACE}|{WRONG}",
    ),
    in_consumer(
        "the_window_sees_the_future",
        "    warpgroup::tril(own, own, 0, -INFINITY);\n",
        "",
        WRONG,
    ),
    in_consumer(
        "the_maximum_is_that_of_half_the_window",
        "    row_max(largest, own, largest);\n",
        "",
        WRONG,
    ),
    in_consumer(
        "keys_that_do_not_exist_are_seen",
        "left_fill(previous, previous, stream.first_row, -INFINITY);",
        ";",
        WRONG,
    ),
    in_consumer(
        "the_last_tokens_enter_the_state",
        "row < p.length ? 1.0f",
        "true ? 1.0f",
        WRONG,
    ),
    in_consumer(
        "the_block_between_is_left_out_of_the_sum",
        "      partial_row_sum(total, linear, total);\n",
        "",
        WRONG,
    ),
    in_features(
        "both_softmaxes_are_the_first",
        "constexpr float kScale = Sign * kLog2e;",
        "constexpr float kScale = kLog2e;",
        WRONG,
    ),
    in_features(
        "sums_of_the_second_softmax_are_those_of_the_first",
        "features[softmax].data[at]",
        "features[0].data[at]",
        WRONG,
    ),
    in_tile(
        "all_segments_begin_at_the_first_block",
        "s.begin = s.index * p.segment_blocks;",
        "s.begin = 0;",
        rf"{RACE}|{WRONG}",
    ),
    in_tile(
        "all_parts_begin_where_their_segments_do",
        "s.begin = s.index / p.parts * p.segment_blocks + before;",
        "s.begin = s.index / p.parts * p.segment_blocks;",
        WRONG,
    ),
    in_passing(
        "segments_begin_with_the_last_part_alone",
        "      if ((first + i + 1) % p.parts == 0) {\n",
        "      if (false) {\n",
        WRONG,
    ),
    in_passing(
        "states_of_keys_are_added_up_from_the_front",
        "return Reverse ? p.slots - 1 - i : i;",
        "return i;",
        WRONG,
    ),
    in_gradient_tile(
        "parts_of_keys_are_those_of_queries",
        "r.index / p.parts + (Config::is_keys ? 1 : 0);",
        "r.index / p.parts;",
        WRONG,
    ),
    in_window(
        "operands_are_read_before_all_have_written",
        "this->await(base::kAtOperands);",
        "this->arrive(base::kAtOperands);",
        rf"{RACE}|{WRONG}",
    ),
    in_window(
        "tiles_are_overwritten_while_they_are_read",
        "this->await(base::kAtTiles);",
        "this->arrive(base::kAtTiles);",
        rf"{RACE}|{WRONG}",
    ),
    in_window(
        "weights_are_overwritten_while_they_are_read",
        "this->meet();  // weights, features and the state have been read",
        "this->arrive(base::kAll);",
        rf"{RACE}|{WRONG}",
    ),
    in_window(
        "halves_of_a_window_have_their_own_largest_scores",
        "[&] { this->meet_half(base::kAtScores); }",
        "[] {}",
        rf"{RACE}|{WRONG}",
    ),
    in_window(
        "results_leave_before_all_have_written",
        "    this->meet_own();  // the results of W are there\n",
        "",
        RACE,
    ),
    in_window(
        "features_enter_before_they_are_there",
        "this->await_entering();",
        "this->arrive_entering();",
        rf"{RACE}|{WRONG}",
    ),
    in_window(
        "gradients_of_queries_are_overwritten_on_their_way",
        "      if (this->signals()) tma::store_async_read_wait<0>();\n      this->meet();",
        "      this->meet();",
        RACE,
    ),
    in_window(
        "gradients_of_keys_are_overwritten_on_their_way",
        "      if (this->signals()) tma::store_async_read_wait<0>();\n      this->meet_own();",
        "      this->meet_own();",
        RACE,
    ),
    in_feature_walk(
        "the_map_takes_gradients_before_both_have_written",
        "    this->meet_half(base::kAtLogits);  // both have stored theirs\n",
        "",
        rf"{RACE}|{WRONG}",
    ),
    in_feature_walk(
        "features_are_overwritten_while_they_are_read",
        "this->meet();  // features and the state have been read",
        "this->arrive(base::kAll);",
        rf"{RACE}|{WRONG}",
    ),
    in_feature_walk(
        "features_enter_before_all_warps_have_written",
        "    this->meet_own();  // all features of W are there\n",
        "",
        rf"{RACE}|{WRONG}",
    ),
    in_feature_walk(
        "the_state_is_read_before_it_is_there",
        "this->await(base::kAtState);",
        "this->arrive(base::kAtState);",
        rf"MBARRIER|{RACE}|{WRONG}",
    ),
    in_rows(
        "the_maximum_has_no_gradient",
        "      if (weight < 0) d_score -= of_largest[half];\n",
        "",
        WRONG,
    ),
    in_rows(
        "what_is_next_to_the_largest_score_is_the_largest",
        "return score == largest ? -weight : weight;",
        "return weight >= 1 ? -weight : weight;",
        WRONG,
    ),
    in_rows(
        "equal_scores_do_not_share",
        "of.alpha * of.beta * of.x / count;",
        "of.alpha * of.beta * of.x;",
        WRONG,
    ),
    in_base(
        "the_block_that_is_new_enters_the_state",
        "kOld = 1 - kNew;",
        "kOld = kNew;",
        rf"{RACE}|{WRONG}",
    ),
    in_base(
        "runs_begin_without_a_state",
        "        add_pieces(state, state_of(part));\n",
        "",
        WRONG,
    ),
    in_base(
        "what_lies_before_the_first_key_enters",
        "fill(scale, block < 0 ? 0.0f : 1.0f);",
        "fill(scale, 1.0f);",
        WRONG,
    ),
)
