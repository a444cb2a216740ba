// Small calls of attention against the formula in double: several tiles a block, of static and
// dynamic schedules, ragged ends, shared key heads, masks with rows that see nothing, sinks and a
// softcap, rows that grow and rows that overflow.
#include "attention_check.h"

#if CONFIGS == 0

#include "attention_cases.h"

TEST(rows_overflow_in_a_dynamic_schedule) {
  check<bf16>({.batch = 1,
               .rows = 100,
               .keys = 500,
               .heads = 5,
               .key_heads = 1,
               .left = 300,
               .right = 0,
               .dynamic = true,
               .value_dim = 40,
               .aimed = 37,
               .aimed_key = 300,
               .factor = 20});
}
// One alone, so that its neighbours are seen without it, too.
TEST(one_row_overflows) {
  check<bf16>({.batch = 1,
               .rows = 20,
               .keys = 300,
               .heads = 1,
               .key_heads = 1,
               .aimed = 100,
               .aimed_key = 20,
               .factor = 20});
}
TEST(rows_grow) {
  check<bf16>({.batch = 1,
               .rows = 20,
               .keys = 512,
               .heads = 1,
               .key_heads = 1,
               .aimed = 9,
               .aimed_key = 300,
               .factor = 3,
               .nan_row = 2});
}
// Where many keys count, so does how a row was scaled: when some rows of a warp grow, of its first
// eight or its last eight, or all.
TEST(rows_grow_by_many_keys) {
  for (const int64_t aimed : {9, 1}) {
    check<bf16>({.batch = 1,
                 .rows = 64,
                 .keys = 384,
                 .heads = 1,
                 .key_heads = 1,
                 .aimed = aimed,
                 .factor = 0.8f,
                 .hill = 250});
  }
}
// Logits of 2³¹ and 2³⁸, whose largest comes first, or later, beside rows of the same warp that are
// near. No powers of two: of those the product with log₂e is not rounded, and nothing can be lost.
TEST(far_rows) {
  for (const int64_t key : {380, 20}) {
    for (const bool sinks : {false, true}) {
      check<bf16>({.batch = 1,
                   .rows = 28,
                   .keys = 384,
                   .heads = 1,
                   .key_heads = 1,
                   .sinks = sinks,
                   .aimed = sinks ? 4 : 20,  // of a warp's first eight rows or its last, or of both
                   .aimed_key = key,
                   .far = key == 20 ? 0x1.54p40f : 0x1.54p33f});
    }
  }
}
// Near still, but where the reference is a multiple of 1 / 2.
TEST(rows_grow_from_large_logits) {
  check<bf16>({.batch = 1,
               .rows = 24,
               .keys = 512,
               .heads = 1,
               .key_heads = 1,
               .aimed = 2,
               .far = 0x1p24f,
               .rises = true});
}
TEST(many_tiles_a_block) { check<bf16>({2, 230, 170, 2, 1}); }
TEST(tiles_of_one_block) { check<bf16>({2, 200, 60, 2, 2}); }
TEST(full_with_a_last_block_of_one_key) { check<bf16>({1, 65, 257, 2, 2}); }
TEST(causal_with_many_more_keys) {
  check<bf16>({.batch = 1,
               .rows = 200,
               .keys = 460,
               .heads = 1,
               .key_heads = 1,
               .right = 0,
               .dynamic = true});
}
// The next tile's first block is skipped while others are at the last one's values.
TEST(causal_tiles_whose_first_rows_skip_a_block) {
  check<bf16>({.batch = 1, .rows = 192, .keys = 200, .heads = 12, .key_heads = 1, .right = 0});
}
// At both edges of what the mask skips: rows − 1 is a multiple of a tile's 192, and the first row
// sees 65 + 1, 126 + 1 or 192 + 1 keys, so that a tile's last row sees 128 n + 1 keys, a first one
// a key less than whole blocks, and a last one whole blocks, of which the next row sees one key
// more.
TEST(causal_with_a_last_block_of_one_key) { check<bf16>({1, 193, 258, 1, 1, kAll, 0}); }
TEST(causal_with_a_first_block_less_one_key) { check<bf16>({1, 193, 319, 1, 1, kAll, 0}); }
TEST(causal_with_whole_blocks) { check<bf16>({1, 193, 320, 1, 1, kAll, 0}); }
TEST(causal_with_whole_blocks_of_a_tile) { check<bf16>({1, 193, 385, 1, 1, kAll, 0}); }
TEST(causal_with_rows_that_see_nothing) { check<bf16>({1, 400, 150, 1, 1, kAll, 0}); }
TEST(window_to_both_sides) { check<bf16>({1, 200, 500, 1, 1, 150, 60}); }
TEST(window_of_whole_blocks) { check<bf16>({1, 193, 640, 1, 1, 384, 63}); }
TEST(window_less_one_key) { check<bf16>({1, 193, 640, 1, 1, 383, 62}); }
TEST(window_from_the_second_half_of_a_block) { check<bf16>({1, 129, 640, 1, 1, 320, 0}); }
TEST(window_past_all_keys) { check<bf16>({1, 400, 100, 1, 1, 20, 0}); }
TEST(packed_sequences_that_are_none_or_one) {
  const problem is{.batch = 1, .rows = 20, .keys = 30, .heads = 1, .key_heads = 1, .dynamic = true};
  check_packed(is, {{4}, {3}});
  check_packed(is, {{0, 20}, {0, 30}});
}
// One block has most of them: tiles that are done again, with others after them that see nothing.
TEST(packed_rows_overflow) {
  check_packed({.batch = 1,
                .rows = 120,
                .keys = 860,
                .heads = 1,
                .key_heads = 1,
                .dynamic = true,
                .aimed = 3,
                .aimed_key = 50,
                .factor = 20},
               {{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 120},
                {0, 140, 140, 140, 140, 280, 420, 420, 420, 560, 700, 860}});
}
// Batches of no key and of all, and numbers out of order, that would lead out of the tensors.
TEST(keys_with_bounds) {
  problem is{.batch = 4, .rows = 70, .keys = 300, .heads = 2, .key_heads = 1, .dynamic = true};
  is.used = {200, 1'000'000, -7, 260};
  is.padding = {130, -1'000'000, 5, 900};
  check<bf16>(is);
  is.right = 0;
  is.left = 150;
  is.padding.clear();
  check<bf16>(is);
  is.used.clear();
  is.padding = {40, 128, 299, 0};
  check<bf16>(is);
}
TEST(sinks) {
  check<bf16>(
      {.batch = 1, .rows = 100, .keys = 90, .heads = 2, .key_heads = 1, .right = 0, .sinks = true});
  check<bf16>({.batch = 1,
               .rows = 30,
               .keys = 300,
               .heads = 1,
               .key_heads = 1,
               .lse = false,
               .sinks = true});
}

#elif CONFIGS == 1

TEST(softcap) {
  check<half>({.batch = 1,
               .rows = 140,
               .keys = 300,
               .heads = 3,
               .key_heads = 1,
               .right = 0,
               .dynamic = true,
               .softcap = 6});
}
// As causal_tiles_whose_first_rows_skip_a_block, with two consumers and two stages.
TEST(softcap_of_tiles_whose_first_rows_skip_a_block) {
  check<half>({.batch = 1,
               .rows = 128,
               .keys = 136,
               .heads = 12,
               .key_heads = 1,
               .right = 0,
               .softcap = 6});
}
TEST(softcap_of_a_window_without_lse) {
  check<half>({.batch = 1,
               .rows = 140,
               .keys = 420,
               .heads = 2,
               .key_heads = 1,
               .left = 280,
               .right = 20,
               .lse = false,
               .softcap = 10});
}
TEST(rows_grow_and_overflow_in_fp16) {
  check<half>({.batch = 1,
               .rows = 130,
               .keys = 512,
               .heads = 2,
               .key_heads = 1,
               .softcap = 80,
               .aimed = 30,
               .aimed_key = 200,
               .factor = 4});
  check<half>({.batch = 1,
               .rows = 130,
               .keys = 512,
               .heads = 2,
               .key_heads = 1,
               .softcap = 80,
               .aimed = 30,
               .aimed_key = 200,
               .factor = 1.2f});
}
// Columns and ones within a tile's last 64; fewer of v's than of k's, and the other way round.
TEST(heads_that_end_within_a_chunk) {
  for (const auto& [head_dim, value_dim] : {std::pair{72, 80}, {80, 40}, {24, 72}}) {
    check<half>({.batch = 1,
                 .rows = 140,
                 .keys = 300,
                 .heads = 3,
                 .key_heads = 1,
                 .right = 0,
                 .dynamic = true,
                 .value_dim = value_dim,
                 .head_dim = head_dim});
  }
}
TEST(large_heads) {
  check<bf16>({.batch = 1,
               .rows = 200,
               .keys = 230,
               .heads = 3,
               .key_heads = 1,
               .right = 0,
               .dynamic = true,
               .value_dim = 192,
               .head_dim = 192});
}
TEST(large_heads_of_far_rows) {
  for (const int64_t key : {220, 20}) {
    check<bf16>({.batch = 1,
                 .rows = 24,
                 .keys = 230,
                 .heads = 1,
                 .key_heads = 1,
                 .sinks = key == 20,
                 .value_dim = 192,
                 .head_dim = 192,
                 .aimed = 4,
                 .aimed_key = key,
                 .far = key == 20 ? 0x1.54p40f : 0x1.54p33f});
  }
}
TEST(large_heads_of_rows_that_see_nothing) {
  check<bf16>({.batch = 1,
               .rows = 300,
               .keys = 100,
               .heads = 2,
               .key_heads = 1,
               .right = 0,
               .dynamic = true,
               .value_dim = 192,
               .head_dim = 192});
}
TEST(large_heads_of_a_window_and_sinks) {
  check<bf16>({.batch = 1,
               .rows = 260,
               .keys = 300,
               .heads = 2,
               .key_heads = 1,
               .left = 70,
               .right = 10,
               .lse = false,
               .sinks = true,
               .value_dim = 136,
               .head_dim = 192});
}

#else

TEST(rows_overflow_without_sums) {
  check<bf16>({.batch = 5,
               .rows = 70,
               .keys = 384,
               .heads = 1,
               .key_heads = 1,
               .lse = false,
               .aimed = 45,
               .aimed_key = 200,
               .factor = 20});
}
TEST(rows_grow_without_sums) {
  check<bf16>({.batch = 1,
               .rows = 20,
               .keys = 640,
               .heads = 1,
               .key_heads = 1,
               .lse = false,
               .aimed = 9,
               .aimed_key = 400,
               .factor = 7});
}
TEST(far_rows_without_sums) {
  check<bf16>({.batch = 1,
               .rows = 24,
               .keys = 384,
               .heads = 1,
               .key_heads = 1,
               .lse = false,
               .aimed = 4,
               .aimed_key = 20,
               .far = 0x1.54p40f});
}
// Of o one column overflows, of rows that exist and of those that do not.
TEST(one_column_overflows) {
  check<bf16>({.batch = 2,
               .rows = 20,
               .keys = 300,
               .heads = 2,
               .key_heads = 2,
               .lse = false,
               .aimed = 9,
               .aimed_key = 100,
               .factor = 3,
               .loud = 5e36f});
}
TEST(window_without_sums) {
  check<bf16>({.batch = 1,
               .rows = 200,
               .keys = 700,
               .heads = 1,
               .key_heads = 1,
               .left = 300,
               .right = 0,
               .lse = false,
               .dynamic = true});
}

#endif
