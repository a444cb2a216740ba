// Small calls of cross_entropy that want the loss alone.
#include "cross_entropy_check.h"

TEST(losses_alone) {
  check<float>({loss_of_floats, 11, 1300, 1300, 1, 1, false, false, true, false, false, 0.2, 0.01});
}
TEST(losses_of_whole_vectors) {
  check<float>(
      {loss_of_floats, 9, 1024, 1024, 0, 0, false, false, false, false, false, 0, 0, true, 4});
}
TEST(losses_of_rows_without_a_sum) {
  problem is{loss_of_floats, 12, 520, 520, 0, 0, false, false, true, false};
  is.nan_row = 8, is.empty_row = 10;
  check<float>(is);
}
TEST(losses_of_far_rows) {
  problem is{loss_of_floats, 9, 1300, 1300, 1, 1, false, false, true, false, false, 0.2};
  is.far = true;
  check<float>(is);
}
