"""Mistakes planted in quantized_linear's kernel: each must be found."""

from functools import partial

from tests.tools.planted import Mistake

in_quantized = partial(Mistake, file="kernels/linear/quantized_linear.cuh")
in_feed = partial(Mistake, file="kernels/linear/quantized_linear_feed.cuh")
in_weights = partial(Mistake, file="kernels/linear/linear_weights.cuh")

WRONG = r"y:\d+: is "
ORDERED = r"nothing orders the two"

QUANTIZED_MISTAKES = (
    in_feed(
        "a_quantized_step_is_read_before_its_copies_have_come",
        "cp_async_wait<Config::stages - 1>()",
        "cp_async_wait<Config::stages>()",
        rf"RACE|NaN|{WRONG}",
    ),
    in_feed(
        "lanes_read_what_their_neighbours_copy_of_a_quantized_weight",
        "arch::load_shared(&stage.bytes[i][lane_])",
        "arch::load_shared(&stage.bytes[i][lane_ ^ 1])",
        rf"{ORDERED}|RACE|{WRONG}",
    ),
    in_feed(
        "quantized_rows_past_the_last_are_read",
        "const int of_all = p.out_features - row;",
        "const int of_all = p.out_features - row + 1;",
        ".",
    ),
    in_feed(
        "quantized_columns_past_the_last_are_read",
        "return weight::kScalesSums || column(of) < p_.in_features ? of.left : 0;",
        "return of.left;",
        ".",
    ),
    in_feed(
        "a_pass_has_the_rows_of_the_one_before",
        "if (next_.advance(p_, mine_)) find_pass();",
        "next_.advance(p_, mine_);",
        WRONG,
    ),
    in_feed(
        "up_of_a_quantized_weight_is_gate",
        "? int64_t{p.out_features} : 0",
        "? int64_t{0} : 0",
        WRONG,
    ),
    in_feed(
        "x_of_the_step_before",
        "    now_.advance(p_, mine_);\n    load_ahead();",
        "    load_ahead();\n    now_.advance(p_, mine_);",
        WRONG,
    ),
    in_feed(
        "rows_of_x_past_the_last_are_read",
        "(row < p_.rows ? row : p_.rows - 1)",
        "row",
        ".",
    ),
    in_feed(
        "columns_of_x_past_the_last_are_read",
        "const bool there = column(now_) < p_.in_features;",
        "const bool there = true;",
        ".",
    ),
    in_feed(
        "scales_of_the_first_group",
        "row * p_.weight_groups.count + group, walk",
        "row * p_.weight_groups.count, walk",
        WRONG,
    ),
    in_feed(
        "scales_of_sums_of_the_first_groups",
        "groups_[n] + group / 2 * 2, exists",
        "groups_[n], exists",
        WRONG,
    ),
    in_feed(
        "scales_of_sums_are_those_of_another_row",
        "lane_ / 4 * 4 + i);",
        "lane_ / 4 * 4 + (i ^ 1));",
        WRONG,
    ),
    in_feed(
        "x_beside_a_constant_quantized_weight_is_loaded_before_the_wait",
        "      begin_dependent_grid();\n    }\n    load_ahead();",
        "    }\n    load_ahead();\n    begin_dependent_grid();",
        "PDL",
    ),
    in_quantized(
        "a_quantized_weight_is_loaded_before_the_wait",
        "  if constexpr (!Config::weight_is_constant) begin_dependent_grid();\n  auto& shared",
        "  auto& shared",
        "PDL",
    ),
    in_quantized(
        "x_is_not_in_the_order_of_e4m3s_pairs",
        "    if constexpr (weight::kRowScaled) order(factors.x);\n",
        "",
        WRONG,
    ),
    in_quantized(
        "sums_of_x_are_left_out",
        "first == 0 ? &of_x : nullptr",
        "nullptr",
        WRONG,
    ),
    in_quantized(
        "sums_of_x_are_added_up_with_each_two_tiles",
        "first == 0 ? &of_x : nullptr",
        "&of_x",
        WRONG,
    ),
    in_weights(
        "bytes_of_e4m3_are_swapped",
        "0x5410",
        "0x7632",
        WRONG,
    ),
    in_weights(
        "nibbles_of_int4_in_their_natural_order",
        "shift = 4 * n;",
        "shift = n % 2 * 16 + n / 2 * 4;",
        WRONG,
    ),
    in_weights(
        "zeros_of_another_group",
        "arch::load_global(zeros + at)",
        "arch::load_global(zeros)",
        WRONG,
    ),
    in_weights(
        "zeros_of_sums_of_another_group",
        "at % 4 * 8 & 0xff",
        "at % 2 * 8 & 0xff",
        WRONG,
    ),
    in_weights(
        "every_column_is_of_the_first_group",
        "return static_cast<int>(group * size > column ? group - 1 : group);",
        "return 0;",
        WRONG,
    ),
    in_weights(
        "nan_of_e4m3_is_480",
        "pairs[0] = kNan;",
        "{}",
        r"no_numbers|isnan",
    ),
    in_weights(
        "the_bias_of_the_exponent_is_that_of_e5m2",
        "kTwoTo120 = 0x7b807b80",
        "kTwoTo120 = 0x7f807f80",
        rf"{WRONG}|isnan",
    ),
)
