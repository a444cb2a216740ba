// Tests that fail, each for a reason of its own, and one that passes: what tests/kittens/
// test_runner.py holds the harness and the runner to. It is not among the programs of the suite.
#include "tiles.h"

using namespace kittens;
using namespace kittens::testing;

namespace {

using tile = rt_fl<16, 16>;

__global__ void writes_nothing(const float*, float*) {}

const float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(passes) { CHECK_EQUAL(1, 1); }

TEST(nan_is_not_close) { CHECK_CLOSE(kNan, 0.0, 1e30); }
TEST(nothing_is_close_to_nan) { CHECK_CLOSE(0.0, kNan, 1e30); }
TEST(nan_is_not_equal) { CHECK_EQUAL(kNan, kNan); }
TEST(nan_in_a_tile) {
  std::vector<float> got(tile::num_elements, 1.0f);
  got[37] = kNan;
  check_tile<tile>(got, [](int, int) { return 1.0f; }, 1e30);
}
TEST(what_no_kernel_has_written) {
  const std::vector<float> in(tile::num_elements, 0.0f);
  check_tile<tile>(
      run_on_tile(writes_nothing, in, tile::num_elements), [](int, int) { return 0.0f; }, 1e30);
}
TEST(throws) { throw std::runtime_error("a reason"); }

}  // namespace
