"""Mistakes planted where two heads are side by side: the simulator must find each one."""

from functools import partial

from tests.tools.planted import Mistake

PROGRAM = "linear_attention_pairs GENERIC=0"
of_pairs = partial(
    Mistake, file="kernels/linear_attention/linear_attention_consumer.cuh", program=PROGRAM
)
in_gates = partial(of_pairs, file="kernels/linear_attention/linear_attention_gates.cuh")
warp_specialized = partial(
    of_pairs, file="kernels/linear_attention/linear_attention_warp_specialized.cuh"
)
in_parts = partial(of_pairs, file="kernels/linear_attention/linear_attention_part_states.cuh")

WRONG = r"outputs\.relative\(\) is "
ORDERED = r"nothing orders the two"
ROUND = r"MBARRIER .* (more arrivals than the|nothing orders the end of phase)"
UNFENCED = r"PROXY FENCE .* there is no proxy fence of their own"
EARLY = r"PDL at .* which has not called wait_prerequisites"

PAIR_MISTAKES = (
    of_pairs(
        "both_heads_have_the_values_of_the_first",
        "shared.heads.v + i / Config::columns",
        "shared.heads.v",
        WRONG,
    ),
    of_pairs("both_heads_have_the_skip_of_the_first", "shared.skip[head]", "shared.skip[0]", WRONG),
    in_gates(
        "steps_of_the_second_half_of_a_word_are_the_first",
        "of_dt(steps, first + i) % 4 == 0 ? low : high",
        "of_dt(steps, first + i) % 4 == 0 ? low : low",
        WRONG,
    ),
    warp_specialized(
        "scores_are_of_a_chunk_before_it_has_come",
        "      shared.chunks.wait_full(at);\n      warpgroup::mma_fence(s);\n",
        "      warpgroup::mma_fence(s);\n",
        ORDERED,
    ),
    warp_specialized(
        "a_chunk_of_two_heads_is_overwritten",
        "    shared.chunks.wait_empty(at);\n",
        "",
        ROUND,
    ),
    warp_specialized(
        "a_state_is_left_where_one_is_read",
        "    shared.states[head].wait_empty(at);\n",
        "",
        ORDERED,
    ),
    warp_specialized(
        "a_state_is_read_before_it_is_there",
        "      shared.states[head].wait_full(from);  // and decays: the state has taken them\n",
        "",
        ORDERED,
    ),
    warp_specialized(
        "weights_are_left_where_others_are_read",
        "        shared.weighted[i].wait_empty(to);\n",
        "",
        ORDERED,
    ),
    warp_specialized(
        "weights_are_read_before_they_are_there",
        "      shared.weighted[head].wait_full(from);\n",
        "",
        r"UNINITIALISED .* wgmma|nothing orders",
    ),
    warp_specialized(
        "decays_are_left_where_others_are_read",
        "      shared.decays[head].wait_empty(at);\n",
        "",
        ORDERED,
    ),
    warp_specialized(
        "scores_decay_before_decays_are_there",
        "        shared.decays[i].wait_full(of_decays);\n",
        "",
        ORDERED,
    ),
    warp_specialized(
        "the_state_decays_before_decays_are_there",
        "    shared.decays[head].wait_full(place_of<kDecays>(step));\n",
        "",
        ORDERED,
    ),
    warp_specialized(
        "gates_of_a_later_chunk_are_waited_for",
        "load_async_wait<kAhead - 1>();",
        "load_async_wait<kAhead>();",
        r"cp_async by .* has not waited|nothing orders",
    ),
    warp_specialized(
        "an_output_is_written_while_it_goes_out",
        "tma::store_async_read_wait<0>();  // the tile is free",
        "{}",
        ORDERED,
    ),
    warp_specialized(
        "values_that_the_state_takes_are_overwritten",
        "      arch::fence_async_proxy();  // behind the loads",
        "      //",
        UNFENCED,
    ),
    warp_specialized(
        "the_state_does_not_decay_to_rows_of_o",
        "        mul_row(o, o, rows_of(decays.before));\n",
        "",
        WRONG,
    ),
    warp_specialized(
        "both_heads_of_a_block_have_the_values_of_the_first",
        "shared.heads.v + i);",
        "shared.heads.v);",
        WRONG,
    ),
    warp_specialized(
        "weights_are_read_before_all_can_see_them",
        "      }\n      arch::fence_async_proxy();\n      arch::sync_warp();\n",
        "      }\n      arch::sync_warp();\n",
        r"PROXY FENCE .* there is no proxy fence in between",
    ),
    warp_specialized(
        "parts_are_read_before_they_are_there",
        "    arch::wait_prerequisites();\n    load_state",
        "    load_state",
        EARLY,
    ),
    warp_specialized(
        "an_output_is_stored_before_those_in_front_have_ended",
        "    arch::wait_prerequisites();\n#pragma",
        "#pragma",
        EARLY,
    ),
    warp_specialized(
        "those_that_read_no_parts_do_not_wait",
        "  arch::wait_prerequisites();  // who has read nothing of parts, too\n",
        "",
        r"PDL: thread .* ends without",
    ),
    in_parts(
        "a_chunk_of_a_part_is_read_before_it_has_come",
        "    shared.chunks.wait_full(at);\n",
        "",
        ORDERED,
    ),
    in_parts(
        "a_chunk_of_a_part_is_overwritten",
        "      shared.chunks.wait_empty(at);\n      shared.chunks.expect(\n",
        "      shared.chunks.expect(\n",
        ROUND,
    ),
    in_parts(
        "factors_are_left_where_others_are_read",
        "      shared.chunks.wait_empty(at);\n      factors_of_pair",
        "      factors_of_pair",
        ORDERED,
    ),
    in_parts(
        "values_of_a_part_are_overwritten",
        "      arch::fence_async_proxy();  // behind the loads",
        "      //",
        UNFENCED,
    ),
    in_parts(
        "a_stage_is_given_back_before_its_product_has_ended",
        "      warpgroup::mma_async_wait<1>();\n",
        "",
        ORDERED,
    ),
    in_parts(
        "tokens_decay_to_the_end_of_their_chunks",
        "exp2_approx(log_decay + (total - sum))",
        "exp2_approx(total - sum)",
        WRONG,
    ),
    in_parts(
        "what_is_in_front_of_a_part_decays_it",
        "return {first, stream.first * kChunk, stream.length};",
        "return {first, 0, stream.length};",
        WRONG,
    ),
    in_parts(
        "the_first_of_an_odd_number_of_chunks_is_left_out",
        "    if (i < stream.count) {\n      load(v, i);",
        "    if (false) {\n      load(v, i);",
        r"BULK COPY .* still under way",
    ),
)
