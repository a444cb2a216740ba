// Small calls of cross_entropy on rows that are read twice.
#include "cross_entropy_check.h"

TEST(less_than_a_step) { check<bf16>({two_passes, 11, 1100, 1104}); }
TEST(several_steps_in_place) { check<bf16>({two_passes, 11, 4700, 4704, 0, 0, true}); }
TEST(steps_that_end_with_a_row) { check<bf16>({two_passes, 6, 4096, 4096, 0, 0, true}); }
TEST(a_last_step_of_one_vector) { check<bf16>({two_passes, 6, 2056, 2056}); }
TEST(a_row_without_a_vector) { check<bf16>({two_passes, 9, 6, 7, 1, 1}); }
TEST(rows_that_are_not_aligned) {
  check<bf16>({two_passes, 11, 3333, 3333, 3, 3, true, true, false, true, true, 0.1, 0.01});
}
TEST(gradients_that_lie_elsewhere) {
  check<bf16>({two_passes, 9, 2061, 2061, 5, 0});
  check<bf16>({two_passes, 9, 1301, 1301, 5, 6});
}
TEST(a_mean_of_few_rows) {
  problem is{two_passes, 37, 1100, 1104};
  is.totalled = true;
  check<bf16>(is);
}
TEST(a_sum_of_few_rows) {
  problem is{two_passes, 12, 601, 601, 0, 0, false, true, false, false};  // the last is ignored
  is.totalled = true;
  check<bf16>(is);
}
TEST(rows_without_a_sum) {
  problem is{two_passes, 12, 1300, 1300};
  is.nan_row = 8, is.empty_row = 10;
  check<bf16>(is);
}
TEST(floats) {
  check<float>(
      {two_passes_of_floats, 9, 2051, 2051, 0, 0, true, true, true, false, true, 0, 0, true, 4});
}
TEST(no_gradient) {
  check<float>({two_passes_of_floats, 11, 2600, 2600, 1, 1, false, false, true, true, false, 0.2});
}
TEST(no_loss) {
  check<bf16>({two_passes, 9, 1100, 1100, 0, 0, false, true, true, true, true, 0, 0, false});
}
TEST(far_rows) {
  problem is{two_passes, 11, 4101, 4104, 3, 3, true};
  is.far = true;
  check<bf16>(is);
  is.width = 1301, is.in_place = false, is.gradient_offset = 2, is.smoothing = 0.1;
  check<bf16>(is);
}
TEST(far_rows_without_a_gradient) {
  problem is{two_passes_of_floats, 11, 2600, 2600, 1, 1, false, false};
  is.far = true;
  check<float>(is);
}
