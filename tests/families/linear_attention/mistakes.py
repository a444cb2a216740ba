"""Mistakes planted in linear_attention's kernel: the simulator must find each one."""

from functools import partial

from tests.tools.planted import Mistake

in_consumer = partial(Mistake, file="kernels/linear_attention/linear_attention_consumer.cuh")
in_decays = partial(Mistake, file="kernels/linear_attention/linear_attention_decays.cuh")
in_state = partial(Mistake, file="kernels/linear_attention/linear_attention_state.cuh")
in_tile = partial(Mistake, file="kernels/linear_attention/linear_attention_tile.cuh")

WRONG = r"outputs\.relative\(\) is "
ORDERED = r"nothing orders the two"

MISTAKES = (
    in_consumer(
        "a_chunk_is_read_before_it_has_come",
        "      shared.chunks.wait_full(at);\n",
        "",
        r"wgmma by .* tma_load by .* nothing orders",
    ),
    in_consumer(
        "a_chunk_is_overwritten_while_it_is_read",
        "    shared.chunks.wait_empty(requested);\n",
        "",
        ORDERED,
    ),
    in_consumer(
        "values_are_given_back_while_others_read_them",
        "        warpgroup::sync(kBarrier + w);  // all have read the values\n",
        "",
        ORDERED,
    ),
    in_consumer(
        "the_state_is_written_while_others_multiply_by_it",
        "    // All have read the values and the state, and what was stored last has left shared "
        "memory.\n    warpgroup::sync(kBarrier + w);\n",
        "",
        r"tma_store by .* store_matrix by .* nothing orders",
    ),
    in_consumer(
        "o_is_written_while_it_is_stored",
        "    if (signals()) tma::store_async_read_wait<0>();\n    // All",
        "    // All",
        r"tma_store by .* store_matrix by .* nothing orders",
    ),
    in_consumer(
        "reads_of_values_are_overtaken_by_the_copy",
        "    arch::fence_async_proxy();  // before the copy that will overwrite the values\n",
        "",
        "PROXY FENCE",
    ),
    in_consumer(
        "the_state_is_published_before_it_is_there",
        "    warpgroup::mma_async_wait<1>(state);\n",
        "",
        r"read accumulator 0, which the product .* still has",
    ),
    in_consumer(
        "rows_of_the_first_chunk_alone_are_decayed",
        "    exp2(since_state, since_state);\n",
        "",
        WRONG,
    ),
    in_consumer(
        "a_token_sees_the_one_behind_it",
        "warpgroup::tril(d, d, 0, -INFINITY)",
        "warpgroup::tril(d, d, 1, -INFINITY)",
        WRONG,
    ),
    in_decays(
        "a_token_does_not_decay_by_itself",
        "memory.data[2 * lane] = sum - g.y;",
        "memory.data[2 * lane] = sum - g.y - g.x;",
        WRONG,
    ),
    in_decays(
        "sums_are_read_before_they_are_written",
        "    memory.data[2 * lane + 1] = sum;\n    arch::sync_warp();\n",
        "    memory.data[2 * lane + 1] = sum;\n",
        r"RACE at linear_attention_decays\.cuh:.* nothing orders",
    ),
    in_state(
        "parts_are_added_without_their_decay",
        "x = x * decay + arch::load_global(from + place);",
        "x = x + arch::load_global(from + place);",
        WRONG,
    ),
    in_tile(
        "packed_sequences_start_at_the_first_token",
        "s.origin = sequence_origin::packed(s.start, s.length);",
        "s.origin = sequence_origin::packed(0, s.length);",
        WRONG,
    ),
)
