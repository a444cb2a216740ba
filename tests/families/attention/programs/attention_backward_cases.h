// Small calls of attention's backward, against the formula in double, that each of its kernels has
// to get right: several tiles a block, of static and dynamic schedules, ragged ends, shared key
// heads, masks with rows that see nothing and keys that nothing sees, sinks, gradients of lse,
// outliers, rows that are NaN, softcaps, and packed sequences with rows and keys of none around
// them.
#pragma once

#include "attention_backward_check.h"

#if CONFIGS == 0 || CONFIGS == 3

// Several tiles in each direction, and quick: it comes first, for most mistakes end the program
// here.
TEST(window_that_ends_at_an_outlier) {  // a tile's one key that one of its rows does not see
  problem is{.batch = 1, .rows = 300, .keys = 300, .heads = 1, .key_heads = 1, .left = 254};
  is.right = 0;
  is.loud = 500;
  is.loud_key = 0;
  check<bf16>(is);
}
TEST(many_tiles_a_block) { check<bf16>({2, 150, 300, 4, 2}); }
TEST(causal_tiles_of_a_dynamic_schedule) {
  check<bf16>({.batch = 2,
               .rows = 300,
               .keys = 400,
               .heads = 2,
               .key_heads = 1,
               .right = 0,
               .dynamic = true,
               .dlse = true,
               .value_dim = 40});
}
TEST(rows_that_see_nothing) { check<bf16>({1, 400, 150, 1, 1, kAll, 0}); }
TEST(one_short_tile) { check<bf16>({1, 5, 7, 1, 1}); }
TEST(one_key_more_than_a_tile) { check<bf16>({1, 129, 129, 2, 2, kAll, 0}); }
TEST(whole_tiles) { check<bf16>({1, 128, 256, 1, 1, kAll, 0}); }
TEST(half_a_tile) { check<bf16>({1, 128, 64, 1, 1}); }
TEST(window_to_both_sides) { check<bf16>({1, 200, 500, 1, 1, 150, 60}); }
TEST(window_of_whole_tiles) { check<bf16>({1, 257, 640, 1, 1, 255, 0}); }
// A tile of which one row does not see one key, and all other rows see all.
TEST(window_of_a_tile_less_a_row) { check<bf16>({1, 300, 300, 1, 1, 126, 0}); }
TEST(window_of_one_key) { check<bf16>({1, 130, 130, 1, 1, 0, 0}); }
TEST(keys_that_nothing_sees) { check<bf16>({1, 60, 500, 3, 1, 20, 0, true}); }
TEST(window_past_all_keys) { check<bf16>({1, 400, 100, 1, 1, 20, 0}); }
TEST(sinks) {
  check<bf16>({.batch = 2,
               .rows = 100,
               .keys = 90,
               .heads = 2,
               .key_heads = 1,
               .right = 0,
               .dlse = true,
               .sinks = true});
}
TEST(sinks_of_rows_that_see_nothing) {
  check<bf16>(
      {.batch = 1, .rows = 200, .keys = 90, .heads = 2, .key_heads = 1, .right = 0, .sinks = true});
}
TEST(rows_without_keys_and_sink) {
  check<bf16>({.batch = 1,
               .rows = 200,
               .keys = 90,
               .heads = 2,
               .key_heads = 1,
               .right = 0,
               .dlse = true,
               .sinks = true,
               .no_sink = true});
}
TEST(without_dq) {
  check<bf16>({.batch = 1, .rows = 90, .keys = 200, .heads = 1, .key_heads = 1, .dq = false});
}
TEST(fused_gradients_with_shared_heads) {
  check<bf16>({.batch = 2,
               .rows = 150,
               .keys = 150,
               .heads = 4,
               .key_heads = 2,
               .right = 0,
               .head_dim = 40,
               .value_dim = 64,
               .fused = true});
}
TEST(fused_gradients_of_keys_with_bounds) {
  problem is{.batch = 3, .rows = 140, .keys = 140, .heads = 2, .key_heads = 1};
  is.used = {140, 90, 33};
  is.padding = {7, 0, 20};
  is.fused = true;
  check<bf16>(is);
}
TEST(outliers) {
  check<bf16>({.batch = 1, .rows = 70, .keys = 200, .heads = 2, .key_heads = 1, .loud = 500});
}
TEST(an_outlier_in_the_second_block_of_keys) {  // whose bound an odd lane finds
  problem is{.batch = 1, .rows = 70, .keys = 200, .heads = 2, .key_heads = 1};
  is.loud = 500;
  is.loud_key = 150;
  check<bf16>(is);
}
// Whose dq overflows where the bound of |k| or |v| misses them: in the first of two rows that a
// thread has and in the second, in even columns and odd ones.
TEST(large_keys_where_queries_are_zero) {
  for (const auto& [key, column] : {std::pair{5, 62}, {40, 5}, {130, 33}}) {
    problem is{.batch = 1, .rows = 70, .keys = 200, .heads = 2, .key_heads = 1};
    is.large_key = key;
    is.large_column = column;
    check<bf16>(is);
  }
}
TEST(gradients_of_which_integers_have_few_bits) {
  problem is{.batch = 1, .rows = 70, .keys = 200, .heads = 2, .key_heads = 1};
  is.v_size = is.do_size = 0x1p-58f;
  check<bf16>(is);
}
// Rows that do not see it, but others of its tile, have a dq of numbers or NaN, and nothing else.
TEST(a_value_that_is_nan) {
  for (const int64_t column : {0, 7}) {  // a lane's first and its last
    problem is{.batch = 1, .rows = 200, .keys = 200, .heads = 1, .key_heads = 1, .right = 0};
    is.nan_key = 190;
    is.nan_column = column;
    check<bf16>(is);
  }
}
TEST(a_row_of_nan) {
  problem is{.batch = 1, .rows = 30, .keys = 40, .heads = 2, .key_heads = 2};
  is.nan_row = 7;
  check<bf16>(is);
}

// As the forward's: numbers out of order, batches without a key, rows that see none.
TEST(keys_with_bounds) {
  problem is{.batch = 4, .rows = 150, .keys = 300, .heads = 2, .key_heads = 1};
  is.used = {200, 1'000'000, -7, 260};
  is.padding = {130, -1'000'000, 5, 900};
  is.dynamic = is.dlse = is.sinks = true;
  check<bf16>(is);
  is.right = 0;
  is.left = 150;
  check<bf16>(is);
  is.padding.clear();
  check<bf16>(is);
  is.used.clear();
  is.padding = {40, 128, 299, 0};
  check<bf16>(is);
}

problem packed(std::vector<int> q_ends, std::vector<int> k_ends, int64_t right) {
  problem is{.batch = 1, .rows = 330, .keys = 420, .heads = 2, .key_heads = 1};
  is.right = right;
  is.q_ends = std::move(q_ends);
  is.k_ends = std::move(k_ends);
  return is;
}
TEST(packed_sequences) {
  check<bf16>(packed({3, 3, 60, 188, 200, 329}, {5, 5, 135, 163, 163, 419}, kAll));
}
TEST(fused_gradients_of_packed_sequences) {
  problem is = packed({3, 60, 200, 400}, {5, 135, 163, 419}, 10);
  is.rows = is.keys;
  is.fused = true;
  check<bf16>(is);
}
TEST(packed_sequences_with_fewer_keys_than_rows) {
  problem is = packed({0, 140, 141, 330}, {0, 20, 150, 420}, 0);
  is.dlse = is.sinks = is.dynamic = true;
  check<bf16>(is);
}
TEST(packed_window) {
  problem is = packed({0, 128, 256}, {1, 129, 400}, 30);
  is.left = 40;
  is.sinks = is.dlse = true;
  check<bf16>(is);
}

#endif
#if CONFIGS != 0

constexpr int kWidth = CONFIGS == 2 ? 256 : 128;
using T = std::conditional_t<CONFIGS == 1, half, bf16>;

problem wide(int64_t rows, int64_t keys, int64_t heads, int64_t right = kAll) {
  problem is{.batch = 1, .rows = rows, .keys = keys, .heads = heads, .key_heads = 1};
  is.right = right;
  is.head_dim = is.value_dim = kWidth;
  is.softcap = CONFIGS == 1 ? 5 : 0;
  return is;
}

// The first for the same reason.
TEST(wide_window) {
  problem is = wide(140, 200, 1, 10);
  is.left = 30;
  check<T>(is);
}
TEST(wide_heads) { check<T>(wide(150, 300, 2)); }
TEST(wide_causal_heads_of_a_dynamic_schedule) {
  problem is = wide(130, 257, 2, 0);
  is.dynamic = true;
  is.head_dim = kWidth - 24;
  check<T>(is);
}
TEST(wide_values_beside_narrow_queries) {
  problem is = wide(65, 130, 1, 0);
  is.head_dim = 40;
  is.softcap = CONFIGS == 1 ? 100 : 0;
  check<T>(is);
}
TEST(wide_fused_gradients) {
  problem is = wide(130, 130, 2, 0);
  is.batch = 2;
  is.fused = true;
  check<T>(is);
}
#if CONFIGS == 2
TEST(wide_heads_whose_scores_are_capped) {
  problem is = wide(150, 300, 2, 0);
  is.softcap = 5;
  check<T>(is);
}
#endif
TEST(wide_whole_tiles) { check<T>(wide(64, 128, 1)); }
// One key of a block that one row of a warp does not see, at either end.
TEST(wide_masks_that_end_at_an_outlier) {
  problem is = wide(64, 110, 1, 0);  // row 0 sees 47 keys
  is.loud = 100;
  is.loud_key = 47;
  check<T>(is);
  is.right = kAll;
  is.left = 60;  // row 15 does not see key 0
  is.loud_key = 0;
  check<T>(is);
}
TEST(wide_without_dq) {  // nor zeros of rows that see no key
  problem is = wide(130, 70, 1, 0);
  is.dq = false;
  check<T>(is);
}
TEST(wide_keys_with_bounds) {  // of the first batch, none
  problem is = wide(140, 200, 2, 0);
  is.batch = 3;
  is.used = {0, 150, 200};
  is.padding = {0, 60, 1};
  is.dynamic = true;
  check<T>(is);
}
TEST(wide_sinks) {
  problem is = wide(70, 60, 2, 0);
  is.sinks = is.dlse = true;
  check<T>(is);
}
TEST(wide_outliers) {
  problem is = wide(40, 70, 2);
  is.loud = 100;
  check<T>(is);
}
TEST(wide_a_row_of_nan) {
  problem is = wide(70, 70, 1);
  is.nan_row = 37;
  check<T>(is);
}
TEST(wide_packed_sequences) {
  problem is = wide(150, 200, 1, 0);
  is.q_ends = {0, 70, 80, 149};
  is.k_ends = {1, 65, 66, 200};
  is.left = 90;
  check<T>(is);
}

#endif
