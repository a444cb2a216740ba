"""Mistakes planted in the gates' and the step's kernels: the simulator must find each one.

Their threads share nothing but a row's sum, so what is wrong shows in the numbers, or as an access
outside of a tensor.
"""

from functools import partial

from tests.tools.planted import Mistake

in_gates = partial(Mistake, file="kernels/mamba2/mamba2_gates.cuh")
in_steps = partial(Mistake, file="kernels/linear_attention/linear_attention_steps.cuh")
in_gradients = partial(Mistake, file="kernels/mamba2/mamba2_gate_gradients.cuh")
in_step = partial(Mistake, file="kernels/mamba2/mamba2_step.cuh")

STEPS = r"got_steps\[(i|place)\] is "
ROWS = r"got_rows\[row \* kWords \+ i\] is "
DECAYS = r"got_decays\[i\] is "
Y = r"number\(y, place\) is "
STATES = r"states\[i\] is "
PAST = r"past the end of a buffer"
ORDERED = r"nothing orders the two"
OF_DT = r"number is "
SUMS = r"got_(a|bias)\[i\] is "

MISTAKES = (
    in_steps("the_exponential_grows", "(x > 0 ? -x : x) * kLog2e", "x * kLog2e", STEPS),
    in_steps(
        "softplus_of_large_steps_vanishes",
        "x > 0 ? x + of_small : of_small;",
        "of_small;",
        STEPS,
    ),
    in_steps("softplus_loses_digits", "int n = 11;", "int n = 5;", STEPS),
    in_steps("steps_have_no_upper_limit", "x > most ? most : x", "x", STEPS),
    in_gates("all_heads_have_the_first_bias", "p.dt_bias + read_head", "p.dt_bias", STEPS),
    in_gates("all_batches_are_the_first", "batch * p.dt_strides.batch +", "", STEPS),
    in_gates(
        "all_heads_decay_as_the_first",
        "arch::load_global(p.a + head)",
        "arch::load_global(p.a)",
        DECAYS,
    ),
    in_gates("a_head_is_written_before_all_have_computed", "  arch::sync_block();\n", "", ORDERED),
    in_gates("the_last_tile_is_full", "    if (token < length) {\n", "    {\n", PAST),
    in_gates("the_last_heads_are_there", "  if (head >= heads) return;\n", "", PAST),
    in_gates(
        "tokens_behind_the_last_are_read", "token < length ? token : length - 1", "token", PAST
    ),
    in_gates("heads_behind_the_last_are_read", "head < heads ? head : heads - 1", "head", PAST),
    in_gates(
        "tokens_of_no_sequence_take_part",
        "const bool is_there = there.has(token);",
        "const bool is_there = true;",
        STEPS,
    ),
    in_gates("packed_sequences_start_at_the_first_token", "start <= token &&", "", STEPS),
    in_gates("packed_sequences_reach_to_the_end", " && token < end;", ";", STEPS),
    in_gates(
        "long_ends_are_read_as_short",
        "ends{p.cu_seqlens, p.int64_seqlens}",
        "ends{p.cu_seqlens, false}",
        STEPS,
    ),
    in_gates("one_word_of_a_row_is_cleared", "i < rows.words", "i < 1", ROWS),
    in_gradients(
        "limits_pass_no_less_than_others",
        "before >= p.dt_min && before <= p.dt_max ? 1.0f : 0.0f",
        "1.0f",
        OF_DT,
    ),
    in_gradients(
        "limits_are_of_dt_before_softplus",
        "const float before = p.softplus ? softplus(raw) : raw;",
        "const float before = raw;",
        OF_DT,
    ),
    in_gradients("the_sigmoid_falls", "exp2_approx(-x * kLog2e)", "exp2_approx(x * kLog2e)", OF_DT),
    in_gradients("decays_do_not_depend_on_dt", "sum + d_decay[i] * a)", "sum)", OF_DT),
    in_gradients("a_gets_no_step", "d_a += d_decay[i] * step[i];", "d_a += d_decay[i];", SUMS),
    in_gradients(
        "tokens_of_no_sequence_have_a_gradient", "if (there.has(first + i))", "if (true)", OF_DT
    ),
    in_gradients(
        "sums_are_added_up_before_all_warps_are_there",
        "  arch::sync_block();\n",
        "",
        ORDERED,
    ),
    in_step(
        "heads_take_groups_in_turn",
        "group = int(head / (p.heads / p.groups))",
        "group = int(head % p.groups)",
        Y,
    ),
    in_step("columns_behind_the_last_are_read", "column < width ? convert", "true ? convert", PAST),
    in_step("rows_behind_the_last_are_written", "row < height && column", "column", Y),
    in_step(
        "padding_has_the_first_state",
        "there = slot >= 0 && row < height",
        "there = row < height",
        STATES,
    ),
    in_step("padding_has_an_output", "slot < 0 ? 0.0f : y", "y", Y),
    in_step(
        "long_indices_are_read_as_short",
        "static_cast<const int64_t*>(indices)",
        "static_cast<const int32_t*>(indices)",
        Y,
    ),
    in_step("float_steps_are_read_as_x", "p.dt_type == dtype::float32", "false", Y),
    in_step("what_is_added_is_no_step", "added = step * x;", "added = x;", Y),
    in_step(
        "y_is_read_before_the_token",
        "        s[e] = fmaf(added, b.values[i][e], decay * s[e]);\n"
        "        y = there ? fmaf(s[e], c.values[i][e], y) : y;\n",
        "        y = there ? fmaf(s[e], c.values[i][e], y) : y;\n"
        "        s[e] = fmaf(added, b.values[i][e], decay * s[e]);\n",
        Y,
    ),
    in_step(
        "half_of_a_row_is_summed",
        "delta < Config::lanes; delta",
        "delta < Config::lanes / 2; delta",
        Y,
    ),
    in_step("the_gate_is_its_sigmoid", "y *= z * arch", "y *= arch", Y),
)
