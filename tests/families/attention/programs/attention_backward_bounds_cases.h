// Small calls of attention's backward for what bounds dq (attention_backward_bounds.cuh): NaN, and
// numbers of v and of the gradient of o whose squares vanish in float, or overflow, in either of
// the two rows that a thread has at a time, which are 32 apart.
#pragma once

#include "attention_backward_check.h"

#if CONFIGS == 0

TEST(a_value_that_is_nan_in_the_first_of_two_rows) {
  problem is{.batch = 1, .rows = 200, .keys = 200, .heads = 1, .key_heads = 1, .right = 0};
  is.nan_key = 196;
  check<bf16>(is);
}
// The last one, which only the last row sees: a row of NaN spoils the gradients of the keys that it
// does not see, too.
TEST(a_key_that_is_nan) {
  problem is{.batch = 1, .rows = 200, .keys = 200, .heads = 1, .key_heads = 1, .right = 0};
  is.nan_key = 199;
  is.nan_in_k = true;
  check<bf16>(is);
}

// Who takes the other row of two for that of the large key finds too small a bound, and dq
// overflows; and so it does in the row with the large gradient. Who takes the large row for the
// other one finds too large a bound, and dq there loses its digits.
void check_bounds_of_two_rows(float v_size, float do_size) {
  for (const auto& [key, row] : {std::pair{0, 33}, {35, 1}}) {
    problem is{.batch = 1, .rows = 70, .keys = 70, .heads = 2, .key_heads = 1};
    is.large_key = key;
    is.large_column = 33;
    is.loud = 500;
    is.loud_key = -1;
    is.loud_row = row;
    is.v_size = v_size;
    is.do_size = do_size;
    check<bf16>(is);
  }
}
TEST(values_whose_squares_vanish) { check_bounds_of_two_rows(0x1p-80f, 0x1p80f); }
TEST(values_whose_squares_overflow) { check_bounds_of_two_rows(0x1p80f, 0x1p-80f); }

#endif
