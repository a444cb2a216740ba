"""Mistakes planted in based_attention's generic kernel: the simulator must find each one."""

from functools import partial

from tests.tools.planted import Mistake

_FILE = "kernels/based_attention/based_attention"
in_features = partial(Mistake, file=f"{_FILE}_features.cuh")
in_forward = partial(Mistake, file=f"{_FILE}_forward.cuh")
in_gradient = partial(Mistake, file=f"{_FILE}_gradient.cuh")
in_states = partial(Mistake, file=f"{_FILE}_states.cuh")
in_walk = partial(Mistake, file=f"{_FILE}_generic_walk.cuh")

WRONG = r"each.relative\(\) is (-?nan|[0-9.]+), not within"
COPIED = r"RACE at |UNINITIALISED|in flight"
RACE = r"RACE at "
OUTSIDE = r"MEMORY at |\.relative\(\) is "

MISTAKES = (
    in_walk(
        "chunks_are_not_waited_for",
        "    load_async_wait<0>();\n    warpgroup::sync(kBarrier);",
        "    warpgroup::sync(kBarrier);",
        COPIED,
    ),
    in_walk(
        "chunks_are_read_before_the_others_copies_are_there",
        "    load_async_wait<0>();\n    warpgroup::sync(kBarrier);",
        "    load_async_wait<0>();",
        COPIED,
    ),
    in_walk(
        "chunks_overwrite_the_stage_in_use",
        "request(step + 1, 1 - at.stage);",
        "request(step + 1, at.stage);",
        COPIED,
    ),
    in_walk(
        "results_are_read_before_all_lanes_have_written_them",
        "    arch::sync_warp();  // all lanes have written it\n",
        "",
        RACE,
    ),
    in_walk(
        "results_are_overwritten_while_they_are_read",
        "    arch::sync_warp();  // all have read it: the next may be written\n",
        "",
        RACE,
    ),
    in_walk(
        "tokens_behind_the_sequence_are_read",
        "at + i * stride, row + i < rows);",
        "at + i * stride, rows > 0);",
        OUTSIDE,
    ),
    in_walk(
        "columns_behind_the_tensor_are_read",
        "rows(column + in_tile < of.width ? length - first : 0),",
        "rows(length - first),",
        OUTSIDE,
    ),
    in_forward(
        "the_state_is_overwritten_while_it_is_read",
        "    warpgroup::sync(kBarrier);  // all have read the state\n",
        "",
        RACE,
    ),
    in_forward(
        "a_token_sees_those_behind_it",
        "      if (part == own) tril(s, s, 0, 0.0f);\n",
        "",
        WRONG,
    ),
    in_gradient(
        "keys_have_no_gradients_of_the_last_queries",
        "Config::reverse ? kChunk / products::kPart : own + 1",
        "own + 1",
        WRONG,
    ),
    in_features(
        "the_column_that_is_one_is_so_of_one_token_in_two",
        "arch::lane_id() / 4 == 4 ? pack<T>(1, 1) : 0;",
        "arch::lane_id() / 4 == 4 ? pack<T>(1, 0) : 0;",
        WRONG,
    ),
    in_states(
        "factors_are_overwritten_while_they_are_read",
        "      warpgroup::sync(kBarrier);  "
        "// all features are there, and all have read the chunk\n",
        "",
        RACE,
    ),
)
