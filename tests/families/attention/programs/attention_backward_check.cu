// Small calls of attention's backward against the formula in double: several tiles a block, of
// static and dynamic schedules, ragged ends, shared key heads, masks with rows that see nothing and
// keys that nothing sees, sinks, gradients of lse, outliers, and rows that are NaN.
#include "attention_backward_check.h"

#if CONFIGS == 0

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
TEST(without_dq) {
  check<bf16>({.batch = 1, .rows = 90, .keys = 200, .heads = 1, .key_heads = 1, .dq = false});
}
TEST(outliers) {
  check<bf16>({.batch = 1, .rows = 70, .keys = 200, .heads = 2, .key_heads = 1, .loud = 500});
}
TEST(a_row_of_nan) {
  problem is{.batch = 1, .rows = 30, .keys = 40, .heads = 2, .key_heads = 2};
  is.nan_row = 7;
  check<bf16>(is);
}

#else

problem wide(int64_t rows, int64_t keys, int64_t heads, int64_t right = kAll) {
  problem is{.batch = 1, .rows = rows, .keys = keys, .heads = heads, .key_heads = 1};
  is.right = right;
  is.head_dim = is.value_dim = 128;
  return is;
}

TEST(wide_heads) { check<half>(wide(150, 300, 2)); }
TEST(wide_causal_heads_of_a_dynamic_schedule) {
  problem is = wide(130, 257, 2, 0);
  is.dynamic = true;
  is.head_dim = 104;
  check<half>(is);
}
TEST(wide_values_beside_narrow_queries) {
  problem is = wide(65, 130, 1, 0);
  is.head_dim = 40;
  check<half>(is);
}
TEST(wide_whole_tiles) { check<half>(wide(64, 128, 1)); }
TEST(wide_sinks) {
  problem is = wide(70, 60, 2, 0);
  is.sinks = is.dlse = true;
  check<half>(is);
}

#endif
