"""Mistakes planted in linear_attention's kernel: the simulator must find each one."""

from functools import partial

from tests.tools.planted import Mistake

in_consumer = partial(Mistake, file="kernels/linear_attention/linear_attention_consumer.cuh")
in_decays = partial(Mistake, file="kernels/linear_attention/linear_attention_decays.cuh")
in_scores = partial(Mistake, file="kernels/linear_attention/linear_attention_scores.cuh")
in_state = partial(Mistake, file="kernels/linear_attention/linear_attention_state.cuh")
in_stream = partial(Mistake, file="kernels/linear_attention/linear_attention_stream.cuh")
in_gradient = partial(Mistake, file="kernels/linear_attention/linear_attention_decay_gradient.cuh")

WRONG = r"outputs\.relative\(\) is "
ORDERED = r"nothing orders the two"
GRADIENT = r"got\[at\] is |isnan"

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
        "    warpgroup::sync(kBarrier + w);  // all have read the values and the decays\n",
        "",
        ORDERED,
    ),
    in_consumer(
        "the_state_is_written_while_others_multiply_by_it",
        "    // All have read the values and the state, and what was stored last has left shared "
        "memory.\n    warpgroup::sync(kBarrier + w);\n",
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
        "const float since_state = Config::reverse ? total - sum : sum - own.data[i];",
        WRONG,
    ),
    in_consumer(
        "decays_are_read_before_they_are_written",
        "    load_state<Config>(p, stream, w, state);\n    warpgroup::sync(kBarrier + w);\n",
        "    load_state<Config>(p, stream, w, state);\n",
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
        "  arch::sync_warp();  // other lanes' copies are there\n",
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
    in_gradient(
        "sums_run_on_over_sequences",
        "    if (token == sequence.start) sum = 0;\n",
        "",
        GRADIENT,
    ),
    in_gradient(
        "a_run_has_what_was_in_front_of_its_sequence",
        "      if (first + i == sequence.start) total = {0, 1};\n",
        "",
        GRADIENT,
    ),
    in_gradient(
        "what_is_in_front_of_a_sequence_is_added",
        "begins ? sum : front.sum + sum",
        "front.sum + sum",
        GRADIENT,
    ),
    in_gradient(
        "tiles_in_front_of_the_sequence_are_added",
        "int tile = sequence.start / Config::tile + of_run;",
        "int tile = of_run;",
        GRADIENT,
    ),
    in_gradient(
        "each_token_is_in_its_own_sum",
        "    double state = 0;\n",
        "    double state = 0;\n    sum += run.terms[i];\n",
        GRADIENT,
    ),
    in_gradient(
        "tokens_of_no_sequence_have_a_gradient",
        "sequence.has(token) ? static_cast<float>(state - sum) : 0.0f",
        "static_cast<float>(state - sum)",
        r"got\[token \* c\.heads \+ h\] is ",
    ),
    in_gradient(
        "a_state_is_that_of_another_sequence",
        "p.state_sums + sequence.index * p.heads",
        "p.state_sums + (sequence.index + 1) % p.sequences * p.heads",
        GRADIENT,
    ),
    in_gradient(
        "sums_of_warps_are_read_before_they_are_there",
        "  arch::sync_block();\n  decay_sum front;\n",
        "  decay_sum front;\n",
        ORDERED,
    ),
    in_gradient(
        "a_tiles_sum_is_added_up_before_its_warps_are_there",
        "  leave_sums(shared, add_up_runs<Config>(own));\n  arch::sync_block();\n",
        "  leave_sums(shared, add_up_runs<Config>(own));\n",
        ORDERED,
    ),
    in_gradient(
        "a_states_sum_is_added_up_before_its_warps_are_there",
        "  arch::sync_block();\n  if (arch::thread_id() != 0) return;\n",
        "  if (arch::thread_id() != 0) return;\n",
        ORDERED,
    ),
    in_gradient(
        "weights_are_left_out", "terms[i] = q - weights[i] * k;", "terms[i] = q - k;", GRADIENT
    ),
)
