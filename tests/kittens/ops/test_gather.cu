// ops/global/vector_load_store.cuh: gather of runs that start at every element, among NaNs, and
// scatter.
#include <cmath>

#include "vectors.h"

using namespace kittens;
using testing::buffer;
using testing::exact_value;
using testing::run;

namespace {

// Run i of `count` starts at in[first + i · stride], and goes to out[i · run]. Each second one of
// them is left out where `all` is false. `held` is what the lanes hold.
template <class V, class T>
__global__ void gather_to(const T* in, T* out, float* held, int first, int stride, int count,
                          bool all) {
  const T* from[V::chunks];
  T* to[V::chunks];
  bool inside[V::chunks];
  for (int c = 0; c < V::chunks; ++c) {
    const int i = V::first(c, arch::lane_id()) / V::run_length;
    from[c] = in + first + i * stride;
    to[c] = out + i * V::run_length;
    inside[c] = i < count && (all || i % 2 == 0);
  }
  V v;
  gather(v, from, inside);
  scatter(to, v, inside);
  store(held, v);
}

// The buffer ends where nothing is read any more.
template <class V, class T>
void check_gather(int first, int stride, int count, bool all) {
  constexpr int kRun = V::run_length, kMargin = gather_margin<T, kRun>;
  const int last = first + (count - 1) * stride + kRun;
  std::vector<T> values(last + kMargin, convert<T>(std::nanf("")));
  for (int i = first; i < last; ++i) values[i] = convert<T>(exact_value(i));
  const buffer<T> in(values), out(std::vector<T>(V::length, convert<T>(-1.0f)));
  const buffer<float> held(static_cast<size_t>(V::length));
  run(gather_to<V, T>, {.grid = {1}, .block = {32}}, in.data(), out.data(), held.data(), first,
      stride, count, all);
  const std::vector<T> got = out.get();
  const std::vector<float> lanes = held.get();
  for (int i = 0; i < V::length; ++i) {
    const int number = i / kRun;
    const bool inside = number < count && (all || number % 2 == 0);
    const float want = exact_value(first + number * stride + i % kRun);
    CHECK_EQUAL(lanes[i], inside ? want : 0.0f);
    CHECK_EQUAL(convert<float>(got[i]), inside ? want : -1.0f);
  }
}

template <class T, int Run, int Length>
void check_runs() {
  using vector = rv<T, Length, ducks::rv_layout::runs<Run>>;
  constexpr int kCount = Length / Run, kMargin = gather_margin<T, Run>;
  for (int first = kMargin; first < kMargin + Run; ++first) {
    for (const int stride : {Run, Run + 1, 2 * Run + 3}) {
      check_gather<vector, T>(first, stride, kCount, true);
      check_gather<vector, T>(first, stride, kCount - 1, false);
    }
  }
}

TEST(runs_start_at_any_element) {
  check_runs<bf16, 8, 512>();
  check_runs<half, 8, 256>();
  check_runs<float, 4, 256>();
}

TEST(runs_of_fewer_bytes) {
  check_runs<bf16, 4, 256>();
  check_runs<half, 2, 64>();
  check_runs<bf16, 1, 64>();
  check_runs<float, 2, 128>();
  check_runs<float, 1, 64>();
}

}  // namespace
