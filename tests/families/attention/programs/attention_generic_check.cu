// Small calls of attention's generic kernel against the formula in double: tiles with ragged ends,
// shared key heads, masks with rows that see nothing, sinks, a softcap, packed sequences, keys with
// bounds, heads narrower than the kernel's, and rows whose logits are large.
#include "attention_check.h"

#if CONFIGS == 0

#include "attention_cases.h"

TEST(ragged_tiles) { check<bf16>({2, 150, 170, 2, 1}); }
TEST(whole_tiles) { check<bf16>({1, 128, 128, 2, 2}); }
TEST(one_key_more_than_blocks) { check<bf16>({1, 129, 193, 1, 1}); }
TEST(causal_tiles_longest_first) {
  check<bf16>({.batch = 1,
               .rows = 260,
               .keys = 300,
               .heads = 3,
               .key_heads = 1,
               .right = 0,
               .dynamic = true});
}
TEST(causal_with_rows_that_see_nothing) { check<bf16>({1, 200, 90, 1, 1, kAll, 0}); }
TEST(causal_with_a_last_block_of_one_key) { check<bf16>({1, 128, 193, 1, 1, kAll, 0}); }
TEST(window_to_both_sides) { check<bf16>({1, 150, 330, 1, 1, 100, 40}); }
TEST(window_of_whole_blocks) { check<bf16>({1, 128, 384, 1, 1, 192, 63}); }
TEST(window_past_all_keys) { check<bf16>({1, 200, 60, 1, 1, 20, 0}); }
TEST(narrow_heads) {
  check<bf16>({.batch = 1,
               .rows = 70,
               .keys = 100,
               .heads = 2,
               .key_heads = 1,
               .value_dim = 24,
               .head_dim = 40});
}
TEST(keys_with_bounds) {
  problem is{.batch = 4, .rows = 70, .keys = 300, .heads = 2, .key_heads = 1, .dynamic = true};
  is.used = {200, 1'000'000, -7, 260};
  is.padding = {130, -1'000'000, 5, 900};
  check<bf16>(is);
  is.right = 0;
  is.left = 150;
  check<bf16>(is);
}
TEST(sinks) {
  check<bf16>(
      {.batch = 1, .rows = 100, .keys = 90, .heads = 2, .key_heads = 1, .right = 0, .sinks = true});
}
// Logits of 2³¹ and 2³⁸, no powers of two, whose largest comes first, or later, beside rows of the
// same warp that are near.
TEST(far_rows) {
  for (const int64_t key : {180, 20}) {
    check<bf16>({.batch = 1,
                 .rows = 28,
                 .keys = 192,
                 .heads = 1,
                 .key_heads = 1,
                 .aimed = 4,
                 .aimed_key = key,
                 .far = key == 20 ? 0x1.54p40f : 0x1.54p33f});
  }
}

#else

TEST(softcap) {
  check<half>({.batch = 1,
               .rows = 140,
               .keys = 200,
               .heads = 3,
               .key_heads = 1,
               .right = 0,
               .dynamic = true,
               .value_dim = 96,
               .head_dim = 96,
               .softcap = 6});
}
TEST(window_without_lse) {
  check<half>({.batch = 1,
               .rows = 140,
               .keys = 260,
               .heads = 2,
               .key_heads = 1,
               .left = 130,
               .right = 20,
               .lse = false,
               .value_dim = 80,
               .head_dim = 96});
}
TEST(large_heads) {
  check<half>({.batch = 1,
               .rows = 130,
               .keys = 110,
               .heads = 3,
               .key_heads = 1,
               .right = 0,
               .dynamic = true,
               .value_dim = 256,
               .head_dim = 256});
}
TEST(large_heads_of_a_window_and_sinks) {
  check<half>({.batch = 1,
               .rows = 100,
               .keys = 130,
               .heads = 2,
               .key_heads = 1,
               .left = 70,
               .right = 10,
               .sinks = true,
               .value_dim = 136,
               .head_dim = 192});
}

#endif
