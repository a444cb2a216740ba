"""Mistakes planted in linear_attention's kernel: the simulator must find each one."""

from functools import partial

from tests.families.linear_attention.pair_mistakes import ORDERED, PAIR_MISTAKES, WRONG
from tests.tools.planted import Mistake

in_consumer = partial(Mistake, file="kernels/linear_attention/linear_attention_consumer.cuh")
at_anchors = partial(in_consumer, program="linear_attention_anchors GENERIC=0")  # o is right
in_anchors = partial(Mistake, file="kernels/linear_attention/linear_attention_anchors.cuh")
in_decays = partial(Mistake, file="kernels/linear_attention/linear_attention_decays.cuh")
in_scores = partial(Mistake, file="kernels/linear_attention/linear_attention_scores.cuh")
in_state = partial(Mistake, file="kernels/linear_attention/linear_attention_state.cuh")
in_stream = partial(Mistake, file="kernels/linear_attention/linear_attention_stream.cuh")
in_gradient = partial(Mistake, file="kernels/linear_attention/linear_attention_decay_gradient.cuh")

ANCHORED = r"std::sqrt\(error / norm\) is |part is "
GRADIENT = r"value is |isnan"

MISTAKES = (
    in_consumer(
        "a_chunk_is_read_before_it_has_come",
        "    shared.chunks.wait_full(chunk);\n",
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
        "    warpgroup::sync(kBarrier + w);  // all have read the values and the decays\n",
        "",
        ORDERED,
    ),
    in_consumer(
        "the_state_is_written_while_others_multiply_by_it",
        "    // All have read the state, and what was stored last has left shared memory.\n"
        "    warpgroup::sync(kBarrier + w);\n",
        "",
        ORDERED,
    ),
    in_consumer(
        "o_is_written_while_it_is_stored",
        "    if (signals()) tma::store_async_read_wait<0>();\n    // All",
        "    // All",
        ORDERED,
    ),
    in_consumer(
        "reads_of_values_are_overtaken_by_the_copy",
        "    arch::fence_async_proxy();      // before the copy that will overwrite the values\n",
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
        "scores_are_read_before_they_are_there",
        "    warpgroup::mma_async_wait<1>(s);\n",
        "",
        r"read accumulator 0, which the product .* still has",
    ),
    in_consumer(
        "the_first_state_is_not_fenced",
        "      decay_and_publish(0);\n      arch::fence_async_proxy();\n",
        "      decay_and_publish(0);\n",
        "PROXY FENCE",
    ),
    in_consumer(
        "what_o_is_stored_with_does_not_fence_the_state",
        "    warpgroup::store(shared.o[w], o);\n",
        "    warpgroup::store_unfenced(shared.o[w], o);\n",
        "PROXY FENCE",
    ),
    in_consumer(
        "dots_are_taken_of_what_has_not_come",
        "    wait(shared.dotted[w], dotted_phase);\n",
        "",
        ORDERED,
    ),
    in_decays(
        "rows_are_not_brought_back_to_their_own_decay",
        "by_factors ? arch::exp2_approx(from_end) * p.scale : p.scale;",
        "p.scale;",
        WRONG,
    ),
    in_decays(
        "exact_weights_decay_from_the_chunks_start",
        "log_from_end.data[i] = from_end;",
        "log_from_end.data[i] = since_state;",
        WRONG,
    ),
    in_scores(
        "a_token_sees_the_one_behind_it",
        "column + 1 >= row : column + 1 <= row;",
        "column + 1 >= row : column <= row;",
        WRONG,
    ),
    in_decays(
        "a_token_does_not_decay_by_itself",
        "const float since_state = Config::reverse ? total - sum : sum;",
        "const float since_state = Config::reverse ? total - sum : sum - own.decay.data[i];",
        WRONG,
    ),
    in_consumer(
        "decays_are_read_before_they_are_written",
        "    load_state<Config>(p, stream, column, state);\n    warpgroup::sync(kBarrier + w);\n",
        "    load_state<Config>(p, stream, column, state);\n",
        ORDERED,
    ),
    in_consumer(
        "gates_are_read_before_they_have_come",
        "    load_async_wait<0>();\n",
        "",
        r"cp_async by .* has not waited|nothing orders",
    ),
    in_decays(
        "other_lanes_gates_are_read_before_they_have_come",
        "    arch::sync_warp();  // other lanes' copies are there\n",
        "",
        ORDERED,
    ),
    in_state(
        "parts_are_added_without_their_decay",
        "x = x * decay + arch::load_global(from + place);",
        "x = x + arch::load_global(from + place);",
        WRONG,
    ),
    in_stream(
        "packed_sequences_start_at_the_first_token",
        "s.origin = sequence_origin::packed(s.start, s.length);",
        "s.origin = sequence_origin::packed(0, s.length);",
        WRONG,
    ),
    at_anchors(
        "a_state_is_left_once_it_has_decayed",
        "step - 1 : step), column,",
        "step - 1 : step + 1), column,",
        ANCHORED,
    ),
    at_anchors(
        "in_reverse_an_anchor_is_the_chunk_behind",
        "(Config::reverse ? step > 0 : step < stream.count)",
        "step < stream.count",
        ANCHORED,
    ),
    in_anchors(
        "anchors_of_packed_sequences_share_slots",
        "start / anchor + 1 + sequence",
        "start / anchor + 1",
        ANCHORED,
    ),
    in_anchors(
        "a_product_is_without_its_scale",
        "sum * p.final_scale",
        "sum",
        ANCHORED,
    ),
    in_anchors(
        "all_consumers_leave_the_firsts_state",
        "p.anchor_warps + 4 * w + arch",
        "p.anchor_warps + arch",
        ANCHORED,
    ),
    in_anchors(
        "first_tokens_are_anchors_without_a_state",
        "  if (token == 0 && !p.anchors_first) return;\n",
        "",
        ANCHORED,
    ),
    in_gradient(
        "what_is_in_front_of_a_run_is_left_out",
        "sum = lane < Config::heads ? 0 : before;",
        "sum = 0;",
        GRADIENT,
    ),
    in_gradient(
        "each_token_is_in_its_own_sum",
        "  KITTENS_DEVICE void store(const linear_attention_decay_gradient_params& p, float value, "
        "float sum,\n                            float slope) const {\n",
        "  KITTENS_DEVICE void store(const linear_attention_decay_gradient_params& p, float value, "
        "float sum,\n                            float slope) const {\n    sum += terms[0];\n",
        GRADIENT,
    ),
    in_gradient(
        "other_sequences_tokens_are_added",
        "terms[i] = first + i < slot.count ? q - weights[i] * k : 0;",
        "terms[i] = q - weights[i] * k;",
        GRADIENT,
    ),
    in_gradient(
        "a_sequence_goes_on_to_the_next_ones_anchor",
        "if (!slot.ends) next",
        "next",
        GRADIENT + "|past the end of a buffer",
    ),
    in_gradient(
        "a_final_states_gradient_is_taken_for_none",
        "const bool is_known = !slot.ends || !p.d_final_state;",
        "const bool is_known = true;",
        GRADIENT,
    ),
    in_gradient(
        "first_tokens_have_states_that_are_not_given",
        "if (!slot.begins || p.initial_state) here",
        "here",
        GRADIENT,
    ),
    in_gradient(
        "errors_are_not_spread",
        "error / static_cast<float>(slot.count)",
        "0 * error",
        GRADIENT,
    ),
    in_gradient(
        "tokens_of_no_sequence_have_a_gradient",
        "sequence >= 0 && sequence < sequences",
        "true",
        r"got\[token \* c\.heads \+ h\] is |past the end",
    ),
    in_gradient(
        "sums_of_warps_are_read_before_they_are_there",
        "  arch::sync_block();\n  float total = 0;\n",
        "  float total = 0;\n",
        ORDERED,
    ),
    in_gradient(
        "weights_are_left_out",
        "? q - weights[i] * k : 0;",
        "? q - k : 0;",
        GRADIENT,
    ),
    *PAIR_MISTAKES,
)
