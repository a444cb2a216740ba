"""Mistakes of arithmetic, places and order, planted in AdamW's kernels: each must be found."""

from functools import partial

from tests.tools.planted import Mistake

in_update = partial(Mistake, file="kernels/adamw/adamw_update.cuh")
in_table = partial(Mistake, file="kernels/adamw/adamw_table.cuh")
in_norm = partial(Mistake, file="kernels/adamw/adamw_norm.cuh")
in_rounding = partial(Mistake, file="kernels/adamw/stochastic_rounding.cuh")

WRONG = r"is .*, not |!="
NORM = r"^norm:0: is "

MISTAKES = (
    in_update(
        "decay_is_not_decoupled",
        "arch::fma(weight_decay, weight, direction)",
        "direction",
        r"^[pw]:",
    ),
    in_update(
        "moments_of_the_step_before",
        "load_global(step) + 1 : p.step",
        "load_global(step) : p.step",
        r".",
    ),
    in_update(
        "eps_inside_of_the_correction",
        "arch::fma(sqrtf(v), correction2, eps)",
        "(sqrtf(v) + eps) * correction2",
        r"^[pw]:",
    ),
    in_update(
        "second_moment_of_the_unclipped",
        "arch::fma(rest2 * g, g, beta2 * v)",
        "arch::fma(rest2 * grad, grad, beta2 * v)",
        r"^[pv]:",
    ),
    in_update("clipping_amplifies", "clip > 1 ? 1.0f : clip", "clip", r"^[pmv]:"),
    in_update("an_infinite_norm_is_not_skipped", "!(norm <= FLT_MAX)", "norm != norm", WRONG),
    in_update("a_nan_is_not_skipped", "!(norm <= FLT_MAX)", "norm > FLT_MAX", WRONG),
    in_update("skipped_steps_count", "if (skipped) {", "if (false) {", WRONG),
    in_update(
        "the_parameter_is_not_the_masters_rounding",
        "if constexpr (Config::master) store(at<P>(t.param, index), w);",
        "",
        r"^p:",
    ),
    in_update(
        "moments_share_their_numbers",
        "round_run<M>(m, words, 16)",
        "round_run<M>(m, words, 0)",
        r"^m:",
    ),
    in_update(
        "the_second_set_is_the_first",
        "s.numbers.get(words, index, 1)",
        "s.numbers.get(words, index, 0)",
        r"^v:",
    ),
    in_table("a_chunk_is_the_next_tensors", "first_chunk <= chunk", "first_chunk < chunk", WRONG),
    in_table(
        "all_chunks_are_the_first", "int64_t(chunk - tensor.first_chunk) * kAdamwChunk", "0", WRONG
    ),
    in_table("the_last_elements_are_left_out", "if (in_runs < length)", "if (false)", WRONG),
    in_table(
        "tensors_start_at_16_bytes",
        "c.tensor.aligned ? length / N * N : 0",
        "length / N * N",
        r"align",
    ),
    in_table(
        "the_counter_stays",
        "if (arch::lane_id() == 0) arch::atomic_exchange(counter, 0);",
        "",
        WRONG,
    ),
    in_norm(
        "halves_are_added_twice",
        "lane < kWarps ? arch::load_shared(shared + lane) : 0.0f",
        "arch::load_shared(shared + lane % kWarps)",
        NORM,
    ),
    in_norm(
        "the_launch_before_is_left_out",
        "i = lane; i < parts",
        "i = lane + p.first; i < parts",
        NORM,
    ),
    in_norm("warps_do_not_meet", "  arch::sync_block();\n", "", r"race|norm|read"),
    in_norm("another_lists_norm_is_left_out", "if (p.more)", "if (false)", NORM),
    in_rounding("always_down", "given + (bits & kLow)", "given", r"^[pmv]:"),
    in_rounding(
        "one_number_for_four",
        "words[i + j] = four.word[j]",
        "words[i + j] = four.word[0]",
        r"^[pmv]:",
    ),
    in_rounding(
        "steps_share_their_numbers",
        "uint32_t(quad >> 32), step, 2",
        "uint32_t(quad >> 32), 0, 2",
        r"^[pmv]:",
    ),
    in_rounding("parameters_share_their_numbers", "2 * parameter + set", "set", r"^[pmv]:"),
)
