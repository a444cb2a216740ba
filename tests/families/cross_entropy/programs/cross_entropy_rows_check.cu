// Small calls of cross_entropy on rows that fit in registers.
#include "cross_entropy_check.h"

TEST(a_row_of_a_warp) { check<bf16>({rows_of_a_warp, 13, 200, 208}); }
TEST(whole_vectors) { check<bf16>({rows_of_a_warp, 8, 1024, 1024, 0, 0, true, true, false}); }
TEST(rows_that_are_not_aligned) { check<bf16>({rows_of_a_warp, 9, 77, 77, 3, 3}); }
TEST(rows_between_two_vectors) { check<bf16>({rows_of_a_warp, 8, 6, 7, 1, 1}); }
TEST(gradients_that_lie_elsewhere) {
  check<bf16>({rows_of_a_warp, 9, 77, 77, 3, 0});
  check<bf16>({rows_of_a_warp, 9, 77, 77, 3, 4});
}
TEST(rows_of_two_warps) { check<bf16>({rows, 10, 2101, 2101, 0, 0, true, true, true, false}); }
TEST(rows_of_three_warps) {
  check<bf16>({rows, 9, 4100, 4104, 5, 5, true, true, true, true, true, 0.1, 0.01});
}
TEST(rows_of_two_blocks) {
  check<bf16>({cluster, 10, 2101, 2101, 0, 0, true, true, true, false});
  check<bf16>({cluster, 9, 3000, 3004, 5, 5, true, true, true, true, true, 0.1, 0.01});
}
TEST(rows_of_eight_blocks) { check<float>({cluster_of_floats, 2, 17003, 17003, 1, 1, true}); }
TEST(a_mean_of_rows_of_two_blocks) {
  problem is{cluster, 10, 1100, 1104};
  is.totalled = true;
  check<bf16>(is);
}
TEST(rows_of_two_blocks_without_a_sum) {
  problem is{cluster, 12, 1100, 1100};
  is.nan_row = 8, is.empty_row = 10;
  check<bf16>(is);
}
TEST(nobody_asks_for_bad_targets) {
  problem is{rows_of_a_warp, 9, 40, 40};
  is.asked = false;
  check<bf16>(is);
}
TEST(no_gradient) { check<bf16>({rows_of_a_warp, 9, 300, 300, 0, 0, false, false}); }
TEST(no_loss) {
  check<bf16>({rows_of_a_warp, 9, 300, 300, 0, 0, false, true, true, true, true, 0.1, 0, false});
}
TEST(a_first_row_that_aims_at_nothing) {
  check<bf16>({rows_of_a_warp, 5, 40, 40, 0, 0, false, true, true, true, false, 0, 0, true, 4});
}
TEST(a_mean_of_few_rows) {
  problem is{rows_of_a_warp, 70, 40, 40, 0, 0, false, true, true, true, false, 0.1};
  is.totalled = true;
  check<bf16>(is);
}
// More than a warp's lanes look for at once.
TEST(a_mean_of_300_rows) {
  problem is{rows_of_a_warp, 300, 40, 40, 0, 0, false, false};
  is.totalled = true;
  check<bf16>(is);
}
TEST(a_sum_of_few_rows) {
  problem is{rows_of_a_warp, 12, 601, 601, 0, 0, false, true, false, false};  // the last is ignored
  is.totalled = true;
  check<bf16>(is);
}
TEST(rows_without_a_sum) {
  problem is{rows_of_a_warp, 12, 52, 52};
  is.nan_row = 8, is.empty_row = 10;
  check<bf16>(is);
}
TEST(far_rows) {
  for (const bool apart : {true, false}) {
    problem is{rows_of_a_warp, 9, 601, 608, 3, 3, !apart};
    is.far = true, is.asked = false, is.smoothing = apart ? 0.1 : 0;
    check<bf16>(is);
    is.form = rows, is.width = 2101, is.stride = 2104, is.gradient_offset = apart ? 2 : 3;
    check<bf16>(is);
    is.form = cluster;
    check<bf16>(is);
  }
  problem is{cluster_of_floats, 2, 17003, 17003, 1, 1, true};
  is.far = true;
  check<float>(is);
}
