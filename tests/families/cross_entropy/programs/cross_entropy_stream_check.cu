// Small calls of cross_entropy on rows that come in chunks.
#include "cross_entropy_check.h"

TEST(chunks_that_all_stay) { check<bf16>({chunks, 11, 1100, 1104}); }
TEST(chunks_that_come_again) { check<bf16>({chunks, 11, 4100, 4104, 0, 0, true}); }
TEST(chunks_that_end_with_a_row) { check<bf16>({chunks, 6, 3072, 3072, 0, 0, true}); }
TEST(chunks_of_rows_that_are_not_aligned) {
  check<bf16>({chunks, 11, 3333, 3333, 3, 3, true, true, false, true, true, 0.1, 0.01});
}
TEST(chunks_of_gradients_that_lie_elsewhere) {
  check<bf16>({chunks, 9, 2061, 2061, 5, 0});
  check<bf16>({chunks, 9, 1301, 1301, 5, 6});
}
TEST(a_last_chunk_of_one_vector) { check<bf16>({chunks, 6, 1032, 1032}); }
TEST(a_mean_of_rows_in_chunks) {
  problem is{chunks, 37, 1100, 1104};
  is.totalled = true;
  check<bf16>(is);
}
TEST(chunks_of_rows_without_a_sum) {
  problem is{chunks, 12, 1300, 1300};
  is.nan_row = 8, is.empty_row = 10;
  check<bf16>(is);
}
TEST(chunks_of_floats) {
  check<float>(
      {chunks_of_floats, 9, 2051, 2051, 0, 0, true, true, true, false, true, 0, 0, true, 4});
}
TEST(chunks_without_a_gradient) {
  check<float>({chunks_of_floats, 11, 2600, 2600, 1, 1, false, false, true, true, false, 0.2});
}
TEST(chunks_without_a_loss) {
  check<bf16>({chunks, 9, 1100, 1100, 0, 0, false, true, true, true, true, 0, 0, false});
}
TEST(chunks_of_far_rows) {
  problem is{chunks, 11, 4101, 4104, 3, 3, true};
  is.far = true;
  check<bf16>(is);
  is.width = 1301, is.in_place = false, is.gradient_offset = 2, is.smoothing = 0.1;
  check<bf16>(is);
}
TEST(chunks_of_far_rows_without_a_gradient) {
  problem is{chunks_of_floats, 11, 2600, 2600, 1, 1, false, false};
  is.far = true;
  check<float>(is);
}
