"""Mistakes planted in attention_decode's and cache_append's kernels: each must be found."""

from functools import partial

from tests.tools.planted import Mistake

in_append = partial(Mistake, file="kernels/attention_decode/cache_append.cuh")
in_combine = partial(Mistake, file="kernels/attention_decode/attention_decode_combine.cuh")
in_decode = partial(Mistake, file="kernels/attention_decode/attention_decode.cuh")
in_work = partial(Mistake, file="kernels/attention_decode/attention_decode_work.cuh")

WRONG = r"o:\d+: is "
K, V = r"k_cache:\d+: is ", r"v_cache:\d+: is "
ORDERED = r"nothing orders the two"

MISTAKES = (
    in_decode(
        "tiles_are_read_before_they_have_landed",
        "    arch::cp_async_wait<Config::stages - 2>();\n",
        "",
        rf"cp_async|{WRONG}",
    ),
    in_decode(
        "other_lanes_copies_are_not_waited_for",
        "    arch::sync_warp();  // all lanes' copies have landed, and all have read the stage "
        "requested next\n",
        "",
        ORDERED,
    ),
    in_decode(
        "nothing_is_requested_in_the_loop",
        "    request();\n    item.add(",
        "    item.add(",
        ORDERED,
    ),
    in_decode(
        "waits_count_too_few_groups",
        "Config::stages - 2",
        "Config::stages - 1",
        WRONG + "|cp_async",
    ),
    in_decode(
        "what_no_query_sees_is_loaded",
        "const bool there = from >= 0;",
        "const bool there = true;",
        WRONG,
    ),
    in_decode("keys_of_the_future_are_seen", " || key > last[i / 2]", "", WRONG),
    in_decode("keys_before_the_window_are_seen", "key < first[i / 2] || ", "", WRONG),
    in_decode("the_sum_is_not_rescaled", "fmaf(l[half], decay, sum)", "l[half] + sum", WRONG),
    in_decode("the_output_is_not_rescaled", "o[i][2 * half] *= decay;", "", WRONG),
    in_decode(
        "lanes_keep_their_own_sums", "    l[half] += arch::shuffle_xor(l[half], 2);\n", "", WRONG
    ),
    in_decode(
        "sinks_have_values",
        "fmaf(sum, factor, arch::exp2_approx(sink - most))",
        "sum * factor",
        WRONG,
    ),
    in_decode("heads_of_all_groups_are_the_first", "at.key_head * p.k_strides.head", "0", WRONG),
    in_decode(
        "the_table_is_read_a_row_too_far",
        "at.b * p.table_stride + column",
        "at.b * p.table_stride + column + 1",
        WRONG,
    ),
    in_work(
        "idle_workers_have_parts",
        "return {smaller(p.workers >> p.abreast, total), total};",
        "return {p.workers >> p.abreast, total};",
        WRONG,
    ),
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
        "empty_sequences_are_entered",
        "while (tiles == 0 && b + 1 < p.batch)",
        "if (b + 1 < p.batch)",
        ".",
    ),
    in_work(
        "parts_of_one_slot",
        "2 * (first + i * step) + (i == 0 ? 1 : 0)",
        "2 * (first + i * step)",
        WRONG,
    ),
    in_combine(
        "parts_are_not_scaled",
        "o[i] = fmaf(part[i], factor, o[i]);",
        "o[i] += part[i];",
        WRONG,
    ),
    in_combine("what_has_been_added_up_is_not_rescaled", "o[i] *= decay;", "o[i] *= 1;", WRONG),
    in_combine("sums_are_not_rescaled", "l *= decay;", "l *= 1;", WRONG),
    in_combine(
        "parts_beyond_the_first_trip_are_left",
        "from += Warps * kPartsAhead",
        "from += parts.count",
        WRONG,
    ),
    in_work(
        "parts_are_counted_from_the_first_sequence",
        "const int from = sums.before + (item >> p.abreast) * tiles;",
        "const int from = (item >> p.abreast) * tiles;",
        WRONG,
    ),
    in_combine(
        "what_a_warp_has_is_read_early",
        "  arch::sync_block();\n",
        "",
        ORDERED,
    ),
    in_combine(
        "sequences_without_keys_are_left",
        "if (parts.count == 1) return;",
        "if (parts.count <= 1) return;",
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
    in_append(
        "values_have_the_places_of_keys",
        "in(p.tensors.v, p.v_strides)",
        "in(p.tensors.k, p.v_strides)",
        V,
    ),
)
