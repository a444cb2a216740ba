"""Mistakes planted in based_attention's kernel for Hopper: the simulator must find each one.

Each changes one place, and runs the program of the mutation tests with it, all passes: it is found
by a report that names the cause, or by wrong numbers.
"""

from functools import partial

from tests.tools.planted import Mistake

_FILE = "kernels/based_attention/based_attention"
in_features = partial(Mistake, file=f"{_FILE}_features.cuh")
in_forward = partial(Mistake, file=f"{_FILE}_forward.cuh")
in_gradient = partial(Mistake, file=f"{_FILE}_gradient.cuh")
in_sums = partial(Mistake, file=f"{_FILE}_sums.cuh")
in_state = partial(Mistake, file=f"{_FILE}_state.cuh")
in_states = partial(Mistake, file=f"{_FILE}_states.cuh")
in_walk = partial(Mistake, file=f"{_FILE}_walk.cuh")

WRONG = r"each.relative\(\) is [0-9.]+, not within"

MISTAKES = (
    in_walk(
        "a_chunk_is_read_before_it_has_come",
        "      shared.chunks.wait_full(at);\n",
        "",
        r"^RACE at .*tma_load by thread 0 writes it at based_attention_walk.cuh",
    ),
    in_walk(
        "reads_of_a_chunk_are_overtaken_by_the_copy",
        "{ arch::fence_async_proxy(); }",
        "{}",
        r"^PROXY FENCE at based_attention_walk.cuh:\d+ .*: tma_load by thread 0 writes .*; "
        r"load_matrix by threads .* reads it at based_attention_tile.cuh",
    ),
    in_states(
        "factors_are_read_before_all_have_written",
        "      this->meet();  // all products are done: the features may be overwritten\n",
        "",
        r"^RACE at based_attention_state.cuh:\d+ .*: threads 0-127 read .*; "
        r"threads 0-63 write it at based_attention_state.cuh",
    ),
    in_state(
        "a_segment_begins_without_those_before_it",
        "        add_states(head_of(i), p.segment_states, p.segment_sums);\n",
        "",
        WRONG,
    ),
    in_state(
        "a_state_is_loaded_before_all_columns_have_places",
        "if (Config::outputs) warpgroup::sync(kBarrier);",
        "",
        r"^RACE at |^ends by signal",  # places of no column are addresses of nothing
    ),
    in_forward(
        "o_is_overwritten_while_it_is_stored",  # by warps that thread 0 has not met
        "    warpgroup::sync(kBarrier);\n\n    products::mma_fence(o, w);",
        "    products::mma_fence(o, w);",
        r"^RACE at .*: (tma_store by thread 0|wgmma by threads 0-127) reads .*; "
        r"store_matrix by threads .* writes it",
    ),
    in_forward(
        "a_token_sees_the_one_behind_it",
        "warpgroup::tril(s, s, 0, 0.0f);",
        "warpgroup::tril(s, s, 1, 0.0f);",
        WRONG,
    ),
    in_gradient(
        "gradients_are_overwritten_while_they_are_stored",
        "      this->await_results();\n",
        "",
        r"^RACE at based_attention_walk.cuh:\d+ .*: tma_store by thread 0 reads .*; "
        r"store_matrix by threads .* writes it",
    ),
    in_gradient(
        "keys_have_gradients_of_the_queries_before_them",
        "Config::reverse ? column >= row : column <= row",
        "column <= row",
        WRONG,
    ),
    in_features(
        "products_of_opposite_elements_count_twice",
        "    if (by < kHalf / 2 || Lanes::has_first_columns()) return product;\n"
        "    return is == kind::low ? Lanes::template one<T>() : 0;\n",
        "    return product;\n",
        WRONG,
    ),
    in_sums(
        "each_of_four_lanes_counts_all_tokens",
        "sums[0] = sums[1] = 0.25f * total;",
        "sums[0] = sums[1] = total;",
        WRONG,
    ),
)
