"""Mistakes planted in attention_decode's and cache_append's kernels: each must be found."""

from functools import partial

from tests.tools.planted import Mistake

in_append = partial(Mistake, file="kernels/attention_decode/cache_append.cuh")
in_combine = partial(Mistake, file="kernels/attention_decode/attention_decode_combine.cuh")
in_decode = partial(Mistake, file="kernels/attention_decode/attention_decode.cuh")
in_item = partial(Mistake, file="kernels/attention_decode/attention_decode_item.cuh")
in_rows = partial(Mistake, file="kernels/attention_decode/attention_decode_rows.cuh")
in_work = partial(Mistake, file="kernels/attention_decode/attention_decode_work.cuh")
PADDED = "attention_decode HEAD_DIM=80 SHARED_KB=99"
SLICED = "attention_decode HEAD_DIM=176 SHARED_KB=163"

WRONG = r"o:\d+: is "
K, V = r"k_cache:\d+: is ", r"v_cache:\d+: is "
ORDERED = r"nothing orders the two"

MISTAKES = (
    in_decode(
        "tiles_are_read_before_they_have_landed",
        "        arch::cp_async_wait<kSlots - 1>();\n",
        "",
        rf"cp_async|{WRONG}",
    ),
    in_decode(
        "other_lanes_copies_are_not_waited_for",
        "        arch::sync_warp();  // all lanes' copies have landed\n",
        "",
        ORDERED,
    ),
    in_decode(
        "a_place_is_requested_that_other_lanes_still_read",
        "        arch::sync_warp();  // all have read them\n",
        "",
        ORDERED,
    ),
    in_decode(
        "nothing_is_requested_in_the_loop",
        "        loader.request();\n        slot",
        "        slot",
        rf"{WRONG}|cp_async|{ORDERED}",
    ),
    in_decode(
        "a_ring_is_filled_by_one_too_few",
        "requested < kSlots",
        "requested < kSlots - 1",
        rf"{WRONG}|cp_async|{ORDERED}",
    ),
    in_decode("waits_count_too_few_groups", "kSlots - 1>()", "kSlots>()", WRONG + "|cp_async"),
    in_decode("keys_behind_the_last_are_loaded", " && first + r < end);", ");", WRONG),
    in_decode(
        "keys_before_the_window_are_loaded", "first + r >= unseen && ", "", rf"{WRONG}|misses"
    ),
    in_decode("values_are_keys", "values ? p.tensors.v : p.tensors.k", "p.tensors.k", WRONG),
    in_decode("heads_of_all_groups_are_the_first", "key_head_of<Config>(at.key_head)", "0", WRONG),
    in_decode(
        "keys_of_a_pair_are_the_first_heads",
        "key_head_of<Config>(at.key_head)",
        "at.key_head * Config::heads",
        WRONG,
        program=PADDED,
    ),
    in_decode(
        "outputs_of_a_pair_are_the_first_heads",
        "const int key_head = key_head_of<Config>(rows.key_head);",
        "const int key_head = rows.key_head * Config::heads;",
        rf"{WRONG}|{ORDERED}",
        program=PADDED,
    ),
    in_decode(
        "outputs_of_parts_of_a_pair_are_the_first_heads",
        "const int key_head = key_head_of<Config>(item.rows.key_head);",
        "const int key_head = item.rows.key_head * Config::heads;",
        rf"{WRONG}|{ORDERED}",
        program=PADDED,
    ),
    in_decode(
        "no_output_of_the_second_of_a_pair_is_cleared",
        "const int key_head = key_head_of<Config>(i / p.rows());",
        "const int key_head = i / p.rows() * Config::heads;",
        rf"{WRONG}|{ORDERED}",
        program=PADDED,
    ),
    in_decode(
        "the_table_is_read_a_row_too_far",
        "at.b * p.table_stride + column",
        "at.b * p.table_stride + column + 1",
        WRONG,
    ),
    in_decode(
        "what_the_warps_had_is_overwritten",
        "    team.sync(p);  // what the warps had before has been read\n",
        "",
        ORDERED,
    ),
    in_decode(
        "what_the_warps_have_is_read_early",
        "at, half);\n    team.sync(p);\n",
        "at, half);\n",
        ORDERED,
    ),
    in_decode(
        "scores_lie_where_parts_are_read",
        "  if (Config::slices > 1) team.sync(p);",
        "  if (Config::slices > 2) team.sync(p);",
        ORDERED,
        program=SLICED,
    ),
    in_decode(
        "columns_of_all_slices_are_the_first",
        "const int column = first_column<Config>() + run",
        "const int column = run",
        WRONG,
        program=SLICED,
    ),
    in_decode(
        "the_last_but_one_to_write_a_part_adds_them_up",
        "arch::atomic_add(counter, 1) == count - 1",
        "arch::atomic_add(counter, 1) == count - 2",
        rf"{WRONG}|counter is",
    ),
    in_decode(
        "counters_are_left_as_they_are",
        "    arch::atomic_exchange(counter, 0);\n",
        "",
        r"counter is",
    ),
    in_decode(
        "groups_are_added_up_before_all_have_been_written",
        "is_last(item.counter(p), item.groups())",
        "is_last(item.counter(p), item.groups() - 1)",
        rf"{WRONG}|counter is",
    ),
    in_decode(
        "groups_are_written_beside_who_counts_them",
        "      arch::sync_block();  // the groups of all teams are written\n",
        "",
        ORDERED,
    ),
    in_decode("of_groups_all_parts_are_added_up", "      all.step = kPartsAhead;\n", "", WRONG),
    in_work(
        "each_block_has_counters_of_its_own",
        "p.counters + (first << p.share) / kWarps",
        "p.counters + arch::block_x()",
        rf"{WRONG}|counter is",
    ),
    in_work(
        "each_block_of_a_group_has_a_counter_of_its_own",
        "(team_of(p, group_first()) << p.share) / kWarps",
        "arch::block_x()",
        rf"{WRONG}|counter is",
    ),
    in_decode(
        "sequences_without_keys_are_left",
        "if (sums.some_empty) clear_outputs<Config>(p);",
        "",
        WRONG,
    ),
    in_item("keys_of_the_future_are_seen", " || key > last[row]", "", WRONG),
    in_item("keys_before_the_window_are_seen", "key < first[row] || ", "", WRONG),
    in_item("the_sum_is_not_rescaled", "l[i] *= decay[i];", "", WRONG),
    in_item("the_output_is_not_rescaled", "*= decay[row_of_element(i)];", "*= 1;", WRONG),
    in_item("no_score_is_large", "Config::few_rows ? 8 : 0;", "1000;", WRONG),
    in_item(
        "the_output_is_rescaled_where_all_rows_are_raised",
        "!arch::vote_any(is_large(0) || is_large(1))",
        "!arch::vote_all(is_large(0) || is_large(1))",
        WRONG,
    ),
    in_item(
        "scales_of_keys_are_left",
        "row_scale *= arch::load_global(p.tensors.k_scale + key_head);",
        "",
        WRONG,
    ),
    in_rows(
        "scales_of_values_are_left",
        "scale *= arch::load_global(p.tensors.v_scale + key_head)",
        "scale *= 1",
        WRONG,
    ),
    in_item(
        "queries_are_not_brought_back",
        "      row_scale *= std::bit_cast<float>(exponent << 23);\n",
        "",
        WRONG,
    ),
    in_item("values_of_e4m3_go_by_keys", "a = by_columns(words[i])", "a = words[i]", WRONG),
    in_item(
        "columns_of_e4m3_are_those_of_others", "kFp8 ? i / 2 * 16", "false ? i / 2 * 16", WRONG
    ),
    in_item(
        "columns_of_values_of_e4m3_are_not_neighbours",
        "kFp8 ? lane * 2 + i",
        "false ? lane * 2 + i",
        WRONG,
    ),
    in_item(
        "scales_are_of_the_rows_whose_queries_a_lane_has",
        "arch::shuffle(row_scale, 4 * row_of(i))",
        "row_scale",
        WRONG,
    ),
    in_item(
        "weights_are_keys_by_rows",
        "arch::transpose_matrix(pair)",
        "pair",
        WRONG,
    ),
    in_item(
        "rows_of_the_second_half_are_those_of_the_first",
        "give_row<1>(part, at, arch::lane_id() / 4)",
        "give_row<0>(part, at, arch::lane_id() / 4)",
        WRONG,
    ),
    in_item(
        "keys_of_e4m3_are_multiplied_by_the_first_columns",
        "queries[2 * c + i]);",
        "queries[2 * c]);",
        WRONG,
    ),
    in_item(
        "scores_of_the_other_slice_are_read_early",
        "    team_place<2>::sync_turn();\n",
        "",
        ORDERED,
        program=SLICED,
    ),
    in_item(
        "scores_lie_where_the_last_are_read",
        "    odd = !odd;\n",
        "",
        ORDERED,
        program=SLICED,
    ),
    in_item(
        "scores_are_of_one_slice",
        "four[2] += more.z",
        "four[2] += 0",
        WRONG,
        program=SLICED,
    ),
    in_item(
        "queries_of_all_slices_are_the_first",
        "const int column = first_column<Config>() + column_of(i)",
        "const int column = column_of(i)",
        WRONG,
        program=SLICED,
    ),
    in_item(
        "queries_of_a_pair_are_the_first_heads",
        "const int key_head = key_head_of<Config>(at.key_head);",
        "const int key_head = at.key_head * Config::heads;",
        WRONG,
        program=PADDED,
    ),
    in_rows("sinks_have_values", "l = fmaf(l, scale, arch::exp2_approx(sink - most));", "", WRONG),
    in_item(
        "lanes_keep_their_own_sums",
        "l[i] += arch::shuffle_xor(l[i], mask);",
        "",
        WRONG,
    ),
    in_work("ranges_overlap", "range * each + smaller(range, longer)", "range * each", WRONG),
    in_work(
        "lengths_are_trusted",
        "smaller(larger(arch::load_global(p.tensors.seqlens + b), 0), p.capacity)",
        "arch::load_global(p.tensors.seqlens + b)",
        ".",
    ),
    in_work(
        "the_window_is_that_of_the_last_query",
        "length - p.queries - p.left",
        "length - 1 - p.left",
        WRONG,
    ),
    in_work(
        "warps_of_a_block_have_a_team_each",
        "team & ((1 << p.abreast) - 1)};",
        "team & ((1 << p.abreast) - 1) & ~1};",
        WRONG,
    ),
    in_work("parts_of_one_slot", " + (of_part == 0 ? 1 : 0);", ";", WRONG),
    in_work(
        "parts_are_those_of_neighbours",
        "first + (of_part << p.abreast)",
        "first + of_part",
        WRONG,
    ),
    in_combine(
        "parts_are_not_scaled",
        "o[j] = fmaf(part[j], of_part, o[j]);",
        "o[j] += part[j];",
        WRONG,
    ),
    in_combine(
        "parts_of_slices_have_one_place",
        "slot * Config::warps + team_place<Config::warps>::of_turn()",
        "slot * Config::warps",
        rf"{WRONG}|{ORDERED}",
        program=SLICED,
    ),
    in_combine(
        "slices_overlap",
        "smaller(out.p.head_dim - first, Config::columns)",
        "out.p.head_dim - first",
        rf"{WRONG}|{ORDERED}",
        program=SLICED,
    ),
    in_combine(
        "parts_have_room_for_as_many_rows_as_can_be",
        "place * Config::rows",
        "place * kRows",
        ".",
    ),
    in_combine("what_has_been_added_up_is_not_rescaled", "o[j] *= decay;", "o[j] *= 1;", WRONG),
    in_combine("sums_are_not_rescaled", "fmaf(l, decay, sum)", "l + sum", WRONG),
    in_combine("sums_of_parts_are_not_scaled", "sums.y * factor", "sums.y", WRONG),
    in_combine(
        "parts_beyond_the_first_trip_are_left",
        "from += kPartsAhead * of.step",
        "from += of.end",
        WRONG,
    ),
    in_append("tokens_go_one_too_far", "- p.tokens + token;", "- p.tokens + token + 1;", K),
    in_append("pages_are_trusted", "page < 0 || page >= p.pages ? -1 : page", "page", "."),
    in_append(
        "tables_are_read_past_their_end",
        "position < p.table_rows ? position : p.table_rows - 1",
        "position",
        ".",
    ),
    in_append(
        "it_turns_back",
        "fmaf(a[i], cos[i], -(b[i] * sin[i]))",
        "fmaf(a[i], cos[i], b[i] * sin[i])",
        K,
    ),
    in_append(
        "second_halves_are_copied_too",
        "    if (col >= half && col < p.rotated) continue;  // who has the first half has both\n",
        "",
        rf"{K}|{ORDERED}",
    ),
    in_append("values_of_e4m3_are_not_scaled", "values[i] /= divisor;", "", "_cache:"),
    in_append("pairs_of_e4m3_change_places", "<< 16;", ";", "_cache:"),
    in_append(
        "values_have_the_places_of_keys",
        "in(p.tensors.v, p.v_strides)",
        "in(p.tensors.k, p.v_strides)",
        V,
    ),
)
