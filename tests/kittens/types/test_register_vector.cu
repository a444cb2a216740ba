// types/register_vector.cuh: which lane holds what.
#include "vectors.h"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

constexpr int kLength = 512;

// owner[i] = the lane that holds element i: the first of several.
template <class V>
__global__ void write_owners(float* owner) {
  V v;
  fill(v, static_cast<float>(arch::lane_id()));
  store(gl<float>::vector(owner, V::length), v);
}

TEST(a_lane_holds_what_its_layout_says) {
  testing::for_each_vector<kLength>([&]<class V>() {
    const buffer<float> owner(kLength);
    run(write_owners<V>, {.grid = {1}, .block = {32}}, owner.data());
    const std::vector<float> got = owner.get();
    constexpr bool kOrtho = std::same_as<typename V::layout, ducks::rv_layout::ortho>;
    constexpr bool kAlign = std::same_as<typename V::layout, ducks::rv_layout::align>;
    for (int i = 0; i < kLength; ++i) {
      const int lane = kOrtho ? i % 8 * 4 : kAlign ? i % 8 / 2 : i / V::run_length % 32;
      CHECK_EQUAL(got[i], lane);
    }
  });
}

static_assert(sizeof(rv<bf16, 512, ducks::rv_layout::runs<8>>) == 32, "16-bit elements are packed");
static_assert(rv<float, 512>::length == 512 && rv<float, 512>::chunks == 16);
static_assert(register_vector<rv<half, 64>> && !register_vector<float>);
static_assert(same_layout<rv<half, 64>, rv<float, 64>>);
static_assert(!same_layout<rv<half, 64>, rv<half, 64, ducks::rv_layout::runs<2>>>);

}  // namespace
