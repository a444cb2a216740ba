// Small calls that each kernel of attention's forward has to get right, whatever its tiles are.
#pragma once

#include "attention_check.h"

TEST(one_short_tile) { check<bf16>({1, 5, 7, 1, 1, kAll, kAll, false}); }
TEST(window_of_one_key) { check<bf16>({1, 130, 130, 1, 1, 0, 0}); }
// Rows and keys before the first sequence and behind the last one; one without rows, one without
// keys, one of a tile and a row.
TEST(packed_sequences) {
  check_packed({.batch = 1, .rows = 320, .keys = 410, .heads = 2, .key_heads = 1, .dynamic = true},
               {{4, 70, 70, 263, 298}, {3, 53, 80, 400, 400}});
  check_packed({.batch = 1,
                .rows = 200,
                .keys = 300,
                .heads = 2,
                .key_heads = 1,
                .right = 0,
                .dynamic = true,
                .value_dim = 40},
               {{0, 130, 200}, {0, 150, 300}});
}
TEST(packed_sequences_past_all_rows) {
  check_packed({.batch = 1, .rows = 50, .keys = 90, .heads = 1, .key_heads = 1, .dynamic = true},
               {{0, 30, 30, 50}, {0, 70, 70, 90}}, {{-3, 30, 20, 60}, {-2, 70, 60, 900}});
}
