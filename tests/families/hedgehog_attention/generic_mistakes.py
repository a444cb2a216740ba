"""Mistakes planted in hedgehog_attention's generic kernels: the simulator must find each one."""

from functools import partial

from tests.tools.planted import Mistake

_FILE = "kernels/hedgehog_attention/hedgehog_attention"
in_forward = partial(Mistake, file=f"{_FILE}_generic.cuh")
in_features = partial(Mistake, file=f"{_FILE}_generic_features.cuh")
in_tile = partial(Mistake, file=f"{_FILE}_generic_tile.cuh")
in_gradient = partial(Mistake, file=f"{_FILE}_generic_gradient.cuh")

WRONG = r"relative|CHECK"
COPIED = r"RACE at |UNINITIALISED|in flight|STILL"
RACE = r"RACE at "

MISTAKES = (
    in_forward(
        "tiles_are_not_waited_for",
        "    load_async_wait<0>();\n    meet();",
        "    meet();",
        COPIED,
    ),
    in_forward(
        "maps_are_overwritten_while_they_are_read",
        "    meet();  // all have read them\n",
        "",
        COPIED,
    ),
    in_forward(
        "parts_are_read_before_all_slices_have_left_theirs",
        "    meet();  // all parts are there; queries and keys have been read\n",
        "",
        rf"{COPIED}|{WRONG}",
    ),
    in_forward(
        "features_are_read_before_they_are_there",
        "    meet();  // features and weights are there; values have been read\n",
        "",
        rf"{COPIED}|{WRONG}",
    ),
    in_forward(
        "keys_overwrite_weights_in_use",
        "    meet();  // queries' features and weights have been read; reciprocals are there\n",
        "",
        rf"{COPIED}|{WRONG}",
    ),
    in_forward(
        "a_state_without_outputs_reads_features_too_early",
        "    meet();  // the features are there\n",
        "",
        rf"{COPIED}|{WRONG}",
    ),
    in_forward(
        "the_window_sees_the_future",
        "    if (half() == 1) tril(s, s, warp_row(), -INFINITY);\n",
        "",
        WRONG,
    ),
    in_forward(
        "keys_that_do_not_exist_are_seen",
        "      left_fill(s, s, stream.first_row, -INFINITY);\n",
        "",
        WRONG,
    ),
    in_forward(
        "the_last_tokens_enter_the_state",
        "row < p.length ? 1.0f",
        "true ? 1.0f",
        WRONG,
    ),
    in_forward(
        "halves_of_a_window_have_their_own_maxima",
        "beta * arch::exp2_approx(shared.of_window[row(i)][half()].largest - largest);",
        "beta;",
        WRONG,
    ),
    in_features(
        "both_softmaxes_are_the_first",
        "  KITTENS_DEVICE void store_softmax(st<T, kBlock, kWidth>& tile, int first,\n"
        "                                    const slice_parts& parts, Scale scale, F f) const {\n"
        "    constexpr float kScale = Sign * kLog2e;\n",
        "  KITTENS_DEVICE void store_softmax(st<T, kBlock, kWidth>& tile, int first,\n"
        "                                    const slice_parts& parts, Scale scale, F f) const {\n"
        "    constexpr float kScale = kLog2e;\n",
        WRONG,
    ),
    in_features(
        "sums_lack_a_row",
        "for (int i = 0; i < kBlock / 4; ++i) {\n      float a, b;",
        "for (int i = 1; i < kBlock / 4; ++i) {\n      float a, b;",
        WRONG,
    ),
    in_tile(
        "tokens_behind_the_sequence_are_read",
        "place >= begin && place < end);",
        "place >= begin);",
        rf"MEMORY at |{WRONG}",
    ),
    in_gradient(
        "values_are_overwritten_while_they_are_read",
        "    this->meet();  // values have been read\n",
        "",
        COPIED,
    ),
    in_gradient(
        "scores_gradients_are_read_too_early",
        "    this->meet();  // they are there, and what is of rows has been read\n",
        "",
        rf"{COPIED}|{WRONG}",
    ),
    in_gradient(
        "logits_overwrite_the_window_in_use",
        "    this->meet();  // the window has been read; sums of columns are there\n",
        "",
        rf"{COPIED}|{WRONG}",
    ),
    in_gradient(
        "weights_overwrite_values_in_use",
        "    this->meet();  // the values have been read\n",
        "",
        rf"{COPIED}|{WRONG}",
    ),
    in_gradient(
        "states_overwrite_queries_in_use",
        "    this->meet();  // they and the window have been read\n",
        "",
        COPIED,
    ),
    in_gradient(
        "keys_have_the_states_of_their_own_block",
        "request_state(shared.window, block_of(step) + 2);",
        "request_state(shared.window, block_of(step));",
        WRONG,
    ),
)
