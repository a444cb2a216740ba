"""Mistakes planted in linear's kernel: each must be found."""

from functools import partial

from tests.tools.planted import Mistake

in_linear = partial(Mistake, file="kernels/linear/linear.cuh")

WRONG = r"y:\d+: is "
ORDERED = r"nothing orders the two"

MISTAKES = (
    in_linear(
        "steps_are_read_before_they_have_come",
        "      shared.stages.wait_full(at);\n",
        "",
        rf"RACE|MBARRIER|NaN|{WRONG}",
    ),
    in_linear(
        "stages_are_filled_while_they_are_read",
        "      shared.stages.wait_empty(at);\n",
        "",
        "RACE|MBARRIER|TMA|" + WRONG,
    ),
    in_linear(
        "one_warp_speaks_for_all",
        "shared.stages.init(kConsumers)",
        "shared.stages.init(1)",
        "RACE|MBARRIER|TMA|" + WRONG,
    ),
    in_linear(
        "only_who_multiplies_waits",
        "      shared.stages.release_after_loads(at);\n",
        "      if (step % kConsumers == arch::warp_id()) shared.stages.release_after_loads(at);\n",
        ".",
    ),
    in_linear(
        "the_weight_is_loaded_before_the_wait",
        "    prefetch_weights(p, mine);\n    shared.stages.init(kConsumers);\n  }\n"
        "  arch::sync_block();\n  arch::wait_prerequisites();\n",
        "    shared.stages.init(kConsumers);\n  }\n  arch::sync_block();\n"
        "  if (!produces) arch::wait_prerequisites();\n",
        "PDL",
    ),
    in_linear(
        "bytes_of_all_tiles_are_expected",
        "tiles * tma::bytes<typename Config::weight_tile>",
        "Config::tiles * tma::bytes<typename Config::weight_tile>",
        ".",
    ),
    in_linear(
        "sums_are_read_early",
        "    group<kConsumers>::sync(1);\n    write_columns(",
        "    write_columns(",
        ORDERED,
    ),
    in_linear(
        "the_next_sums_are_written_early",
        "    group<kConsumers>::sync(1);  // before the next pass's sums\n",
        "",
        ORDERED,
    ),
    in_linear(
        "sums_of_three_warps",
        "for (int w = 0; w < kConsumers; ++w)",
        "for (int w = 1; w < kConsumers; ++w)",
        WRONG,
    ),
    in_linear(
        "sums_go_on_from_pass_to_pass",
        "    for (int i = 0; i < Config::tiles; ++i) zero(of_tile[i]);\n",
        "",
        WRONG,
    ),
    in_linear(
        "up_has_the_bias_of_gate",
        "p.out_features + feature);\n      y = y /",
        "feature);\n      y = y /",
        WRONG,
    ),
    in_linear(
        "up_is_gate",
        "f(2 * i + 1, p.up, at)",
        "f(2 * i + 1, p.weight, at)",
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
