"""Mistakes planted in linear's kernel: each must be found."""

from functools import partial

from tests.tools.planted import Mistake

in_linear = partial(Mistake, file="kernels/linear/linear.cuh")

WRONG = r"y:\d+: is "
ORDERED = r"nothing orders the two"

MISTAKES = (
    in_linear(
        "steps_are_read_before_they_have_come",
        "      wait(full[at.stage], at.phase);\n",
        "",
        rf"RACE|NaN|{WRONG}",
    ),
    in_linear(
        "copies_overtake_what_is_read",
        "      arch::fence_async_proxy();  // the copy that comes next writes what has been read\n",
        "",
        "PROXY FENCE",
    ),
    in_linear(
        "stages_are_filled_while_other_lanes_read_them",
        "      arch::sync_warp();\n      if (arch::lane_id() == 0 && next",
        "      if (arch::lane_id() == 0 && next",
        ORDERED,
    ),
    in_linear(
        "the_weight_is_loaded_before_the_wait",
        "  begin_dependent_grid();\n  auto& shared",
        "  auto& shared",
        "PDL",
    ),
    in_linear(
        "bytes_of_all_tiles_are_expected",
        "groups * Config::tiles_of_group * tma",
        "Config::tiles * tma",
        ".",
    ),
    in_linear(
        "warps_begin_a_pass_with_the_first_step",
        "    step = arch::warp_id();\n    ++pass;",
        "    step = 0;\n    ++pass;",
        ".",
    ),
    in_linear(
        "sums_are_read_early",
        "    group<kWarps>::sync(1);\n    write_columns(",
        "    write_columns(",
        ORDERED,
    ),
    in_linear(
        "the_next_sums_are_written_early",
        "    group<kWarps>::sync(1);  // before the next pass's sums\n",
        "",
        ORDERED,
    ),
    in_linear(
        "sums_of_three_warps",
        "for (int w = 0; w < kWarps; ++w) {",
        "for (int w = 1; w < kWarps; ++w) {",
        WRONG,
    ),
    in_linear(
        "sums_go_on_from_pass_to_pass",
        "    sums.clear();\n",
        "    if (pass == 0) sums.clear();\n",
        WRONG,
    ),
    in_linear(
        "up_has_the_bias_of_gate",
        "p.out_features + feature, scale);\n      y = y /",
        "feature, scale);\n      y = y /",
        WRONG,
    ),
    in_linear(
        "up_is_gate",
        "stage.weight[2 * i + 1], p.up, full, at)",
        "stage.weight[2 * i + 1], p.weight, full, at)",
        WRONG,
    ),
    in_linear(
        "gates_are_not_gated",
        "y = y / (1.0f + expf(-y)) * up;",
        "y = y * up;",
        WRONG,
    ),
    in_linear(
        "columns_past_the_last_are_written",
        "    if (feature >= p.out_features) continue;\n",
        "",
        ".",
    ),
    in_linear(
        "the_residual_is_that_of_the_first_row",
        "arch::load_global(residual + at)",
        "arch::load_global(residual + feature)",
        WRONG,
    ),
    in_linear(
        "squares_of_three_warps",
        "for (int w = 0; w < kWarps; ++w) sum +=",
        "for (int w = 1; w < kWarps; ++w) sum +=",
        WRONG,
    ),
    in_linear(
        "the_norms_weight_is_that_of_the_first_step",
        "norm.load_weight(p, step);",
        "norm.load_weight(p, arch::warp_id());",
        WRONG,
    ),
    in_linear(
        "squares_of_every_other_pair",
        "      sum += arch::shuffle_xor(sum, 1);\n",
        "",
        WRONG,
    ),
    in_linear(
        "blocks_have_the_groups_of_the_first",
        "return {first, before(",
        "return {0, before(",
        WRONG,
    ),
    in_linear(
        "passes_overlap",
        "return first + pass * Config::groups;",
        "return first + pass;",
        WRONG,
    ),
)
