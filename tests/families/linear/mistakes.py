"""Mistakes planted in linear's kernels: each must be found."""

from functools import partial

from tests.families.linear.quantized_mistakes import QUANTIZED_MISTAKES
from tests.tools.planted import Mistake

in_linear = partial(Mistake, file="kernels/linear/linear.cuh")
in_rows = partial(Mistake, file="kernels/linear/linear_rows.cuh")
in_rows_producer = partial(Mistake, file="kernels/linear/linear_rows_producer.cuh")
in_pass = partial(Mistake, file="kernels/linear/linear_pass.cuh")
in_generic = partial(Mistake, file="kernels/linear/linear_generic.cuh")

WRONG = r"y:\d+: is "
ORDERED = r"nothing orders the two"

MISTAKES = (
    in_linear(
        "steps_are_read_before_they_have_come",
        "    wait(full_[at_.stage], at_.phase);\n",
        "",
        rf"RACE|NaN|{WRONG}",
    ),
    in_linear(
        "copies_overtake_what_is_read",
        "    arch::fence_async_proxy();  // the copy that comes next writes what has been read\n",
        "",
        "PROXY FENCE",
    ),
    in_linear(
        "stages_are_filled_while_other_lanes_read_them",
        "    arch::sync_warp();\n    request(at_.stage);",
        "    request(at_.stage);",
        ORDERED,
    ),
    in_linear(
        "the_weight_is_loaded_before_the_wait",
        "    begin_dependent_grid();\n  }\n  auto& shared",
        "  }\n  auto& shared",
        "PDL",
    ),
    in_linear(
        "x_beside_a_constant_weight_is_loaded_before_the_wait",
        "    begin_dependent_grid();\n    for (int i = 0;",
        "    for (int i = 0;",
        "PDL",
    ),
    in_linear(
        "x_beside_a_constant_weight_is_that_of_the_next_step",
        "load_x(ring_[i], full_[i], of_x.step)",
        "load_x(ring_[i], full_[i], next_.step)",
        WRONG,
    ),
    in_linear(
        "bytes_of_all_tiles_are_expected",
        "groups * Config::tiles_of_group * tma",
        "Config::tiles * tma",
        ".",
    ),
    in_pass(
        "warps_begin_a_pass_with_the_first_step",
        "    step = arch::warp_id();\n    ++pass;",
        "    step = 0;\n    ++pass;",
        ".",
    ),
    in_pass(
        "sums_are_read_early",
        "    group<Config::warps>::sync(1);\n    epilogue.write(",
        "    epilogue.write(",
        ORDERED,
    ),
    in_pass(
        "the_next_sums_are_written_early",
        "    if constexpr (Config::sum_buffers == 1) group<Config::warps>::sync(1);\n",
        "",
        ORDERED,
    ),
    in_pass(
        "sums_of_all_warps_but_one",
        "for (int w = 0; w < Config::warps; ++w) {",
        "for (int w = 1; w < Config::warps; ++w) {",
        WRONG,
    ),
    in_pass(
        "sums_go_on_from_pass_to_pass",
        "    sums.clear();\n",
        "    if (pass == 0) sums.clear();\n",
        WRONG,
    ),
    in_pass(
        "up_has_the_bias_of_gate",
        "const int row = i % kTiles * p_.out_features + feature_of(i / kTiles);",
        "const int row = feature_of(i / kTiles);",
        WRONG,
    ),
    in_linear(
        "up_is_gate",
        "(stage.weight[1][0], p_.up[groups - 1], full, at)",
        "(stage.weight[1][0], p_.weight[groups - 1], full, at)",
        WRONG,
    ),
    in_linear(
        "a_last_pass_copies_as_many_groups_as_others",
        "(stage.weight[0][0], p_.weight[groups - 1], full, at)",
        "(stage.weight[0][0], p_.weight[Config::groups - 1], full, at)",
        ".",
    ),
    in_linear(
        "gate_and_up_take_turns_in_a_stage",
        "stage.weight[i % kOfGroup][i / kOfGroup]",
        "stage.weight[i / Config::groups][i % Config::groups]",
        rf"UNINITIALISED|{WRONG}",
    ),
    in_pass(
        "gates_are_not_gated",
        "y = y / (1.0f + expf(-y)) * sums",
        "y = y * sums",
        WRONG,
    ),
    in_pass(
        "columns_past_the_last_are_written",
        "return group_of(i) < groups_ && feature_of(i) < p_.out_features;",
        "return group_of(i) < groups_;",
        ".",
    ),
    in_pass(
        "the_residual_is_that_of_the_first_row",
        "static_cast<const T*>(p.tensors.residual) + at)",
        "static_cast<const T*>(p.tensors.residual) + feature_of(i))",
        WRONG,
    ),
    in_pass(
        "threads_write_groups_that_others_have",
        "groups_(mine.count_of(pass)), first_(",
        "groups_(Config::groups), first_(",
        ".",
    ),
    in_pass(
        "the_bias_of_the_first_group",
        "bias_[i] = arch::load_global(bias + row)",
        "bias_[i] = arch::load_global(bias + row % kGroup)",
        WRONG,
    ),
    in_pass(
        "rows_of_one_turn_alone",
        "return row_ + turn * kRowsAtOnce;",
        "return row_;",
        WRONG,
    ),
    in_pass(
        "squares_of_all_warps_but_one",
        "for (int w = 0; w < Config::warps; ++w) sum +=",
        "for (int w = 1; w < Config::warps; ++w) sum +=",
        WRONG,
    ),
    in_pass(
        "the_norms_weight_is_that_of_the_first_step",
        "norm.load_weight(p, step);",
        "norm.load_weight(p, arch::warp_id());",
        WRONG,
    ),
    in_pass(
        "squares_of_every_other_pair",
        "      sum += arch::shuffle_xor(sum, 1);\n",
        "",
        WRONG,
    ),
    in_pass(
        "blocks_have_the_groups_of_the_first",
        "return {first, before(",
        "return {0, before(",
        WRONG,
    ),
    in_pass(
        "passes_overlap",
        "return first + pass * Config::groups;",
        "return first + pass;",
        WRONG,
    ),
    in_generic(
        "a_step_is_read_before_its_copies_have_come",
        "cp_async_wait<Config::stages - 1>()",
        "cp_async_wait<Config::stages>()",
        rf"RACE|NaN|{WRONG}",
    ),
    in_generic(
        "groups_of_nothing_are_not_counted",
        "    if (next_.valid(p_, mine_)) load_stage<WithX>(ring_[stage]);\n"
        "    arch::cp_async_commit();",
        "    if (next_.valid(p_, mine_)) {\n      load_stage<WithX>(ring_[stage]);\n"
        "      arch::cp_async_commit();\n    }",
        rf"RACE|NaN|{WRONG}",
    ),
    in_generic(
        "lanes_read_what_their_neighbours_copy",
        "arch::load_shared(&from[half][lane_])",
        "arch::load_shared(&from[half][lane_ ^ 1])",
        rf"{ORDERED}|RACE|{WRONG}",
    ),
    in_generic(
        "rows_past_the_last_are_read",
        "row < p_.out_features",
        "row <= p_.out_features",
        ".",
    ),
    in_generic(
        "columns_past_the_last_are_read",
        "there && left > 0",
        "there",
        ".",
    ),
    in_generic(
        "ends_of_rows_are_left_out",
        "there ? left / int(sizeof(T)) : 0",
        "0",
        WRONG,
    ),
    in_generic(
        "up_is_gate_in_the_generic_kernel",
        "int64_t{p_.out_features} + row, there",
        "row, there",
        WRONG,
    ),
    in_generic(
        "rows_of_x_past_the_last_are_copied",
        "x_row(half) < p_.rows);",
        "x_row(half) <= p_.rows);",
        ".",
    ),
    in_generic(
        "the_norm_of_other_columns",
        "return lane % 4 * lane_cols + 2 * i;",
        "return lane % 4 * 2 + 8 * i;",
        WRONG,
    ),
    in_generic(
        "the_weight_is_loaded_before_the_wait_by_the_generic_kernel",
        "  if constexpr (!Config::weight_is_constant) begin_dependent_grid();\n  auto& shared",
        "  auto& shared",
        "PDL",
    ),
    in_generic(
        "x_beside_a_constant_weight_is_that_of_the_first_step",
        "      at.advance(p_);\n    }\n    at = {};",
        "    }\n    at = {};",
        WRONG,
    ),
    in_generic(
        "ends_of_rows_of_x_beside_a_constant_weight_are_left_out",
        "x_row(half) < p_.rows ? left / int(sizeof(T)) : 0",
        "0",
        WRONG,
    ),
    in_generic(
        "x_beside_a_constant_weight_is_loaded_before_the_wait_by_the_generic_kernel",
        "    begin_dependent_grid();\n    fill_x();",
        "    fill_x();\n    begin_dependent_grid();",
        "PDL",
    ),
    in_pass(
        "two_buffers_are_one",
        "sums.share(shared.of_warp[pass % Config::sum_buffers][arch::warp_id()], tiles);",
        "sums.share(shared.of_warp[0][arch::warp_id()], tiles);",
        ".",
    ),
    in_pass(
        "scales_of_rows_are_left_out",
        "Config::weight::kRowScaled ? scale * scale_[i] : scale",
        "scale",
        WRONG,
    ),
    in_linear(
        "rows_that_no_copy_brings_are_not_cleared",
        "      clear_rows(ring_[i].x, p.rows, arch::lane_id(), kWarp);\n",
        "",
        "UNINITIALISED",
    ),
    in_linear(
        "bytes_of_rows_that_no_copy_brings_are_waited_for",
        "p_.rows * tma::bytes_of_row<typename Config::x_tile> +",
        "tma::bytes<typename Config::x_tile> +",
        ".",
    ),
    in_rows(
        "steps_of_many_rows_are_read_before_they_have_come",
        "      shared_.steps.wait_full(at_);\n",
        "",
        rf"RACE|NaN|{WRONG}",
    ),
    in_rows(
        "stages_are_given_back_while_the_tensor_cores_read_them",
        "      warpgroup::mma_async_wait<0>();\n      shared_.steps.release_after_loads(at_);\n",
        "      shared_.steps.release_after_loads(at_);\n      warpgroup::mma_async_wait<0>();\n",
        ".",
    ),
    in_rows(
        "copies_overtake_the_loads_of_x",
        "shared_.steps.release_after_loads(at_);",
        "if (arch::lane_id() == 0) shared_.steps.release_after_mma(at_);",
        "PROXY FENCE|nothing orders",
    ),
    in_rows_producer(
        "stages_are_filled_before_they_are_empty",
        "        shared_.steps.wait_empty(at);\n",
        "",
        ".",
    ),
    in_rows(
        "the_weight_of_many_rows_is_loaded_before_the_wait",
        "    begin_dependent_grid();\n    if (arch::lane_id() == 0) producer.run();",
        "    if (arch::lane_id() == 0) producer.run();\n    begin_dependent_grid();",
        "PDL",
    ),
    in_rows_producer(
        "x_beside_a_constant_weight_is_that_of_the_step_after_the_ring",
        "load_x(at.stage, of_x.step)",
        "load_x(at.stage, next_.step)",
        WRONG,
    ),
    in_rows_producer(
        "up_is_gate_of_many_rows",
        "const auto& map = is_up() ? p_.up : p_.weight;",
        "const auto& map = p_.weight;",
        WRONG,
    ),
    in_rows(
        "both_warpgroups_have_the_first_tiles",
        "return arch::warp_id() / 4 * Config::tiles;",
        "return 0;",
        WRONG,
    ),
    in_rows(
        "squares_of_one_chunk_of_a_step",
        "for (int c = 0; c < Config::chunks; ++c) sum += norm_[c].squares[i];",
        "sum += norm_[0].squares[i];",
        WRONG,
    ),
    in_rows(
        "tiles_that_no_copy_brings_are_not_cleared",
        "clear_rows(stage.weight[c][tile], 0, arch::thread_id(), kThreads);",
        "",
        "UNINITIALISED",
    ),
    in_rows(
        "rows_of_many_that_no_copy_brings_are_not_cleared",
        "        clear_rows(stage.x[c], p_.rows, arch::thread_id(), kThreads);\n",
        "",
        "UNINITIALISED",
    ),
    in_rows(
        "tiles_of_the_first_pass_alone_are_cleared",
        "const int tiles = mine_.count_of(i / p_.steps) * (p_.gated ? 2 : 1);",
        "const int tiles = mine_.count_of(0) * (p_.gated ? 2 : 1);",
        "UNINITIALISED",
    ),
    in_rows(
        "the_weight_is_read_before_its_zeros_are_shown",
        "    arch::fence_async_proxy();  // wgmma reads the weight\n",
        "",
        "PROXY FENCE|nothing orders",
    ),
    in_rows_producer(
        "bytes_of_tiles_that_no_copy_brings_are_waited_for",
        "(mine * tma::bytes<typename Config::box> +",
        "(2 * tma::bytes<typename Config::box> +",
        ".",
    ),
    in_rows(
        "rows_that_there_are_not_are_written",
        "if (row_tile() * kRows + row >= p_.rows || left <= 0) continue;",
        "if (left <= 0) continue;",
        ".",
    ),
    in_rows(
        "the_residual_of_many_rows_is_that_of_the_first",
        "load_quad(p_.tensors.residual, at, left)",
        "load_quad(p_.tensors.residual, feature, left)",
        WRONG,
    ),
    in_rows(
        "columns_past_the_last_of_a_quad_are_written",
        "      if (i < left) arch::store_global",
        "      arch::store_global",
        ".",
    ),
    in_rows(
        "sums_of_many_rows_are_read_before_other_lanes_have_written_them",
        "share_squares();\n    arch::sync_warp();\n",
        "share_squares();\n",
        ORDERED,
    ),
    in_rows_producer(
        "every_block_has_the_groups_of_the_first",
        "return {.first = block * p.groups_of_block + (block < more ? block : more),",
        "return {.first = 0,",
        WRONG,
    ),
    *QUANTIZED_MISTAKES,
)
