// arch/shuffle.cuh: every shuffle and vote, on each size of value.
#include <functional>

#include "harness.h"
#include "kittens/arch/shuffle.cuh"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

enum class kind { any_lane, exclusive_or, down, up };

template <kind Kind, class T>
__global__ void shuffles(const T* in, T* out, int argument) {
  const T v = in[arch::thread_id()];
  T result{};
  if constexpr (Kind == kind::any_lane) result = arch::shuffle(v, argument);
  if constexpr (Kind == kind::exclusive_or) result = arch::shuffle_xor(v, argument);
  if constexpr (Kind == kind::down) result = arch::shuffle_down(v, argument);
  if constexpr (Kind == kind::up) result = arch::shuffle_up(v, argument);
  out[arch::thread_id()] = result;
}

int source_lane(kind k, int lane, int argument) {
  if (k == kind::any_lane) return argument % 32;
  if (k == kind::exclusive_or) return lane ^ argument;
  const int from = k == kind::down ? lane + argument : lane - argument;
  return from >= 0 && from < 32 ? from : lane;
}

template <kind Kind, class T>
void check_shuffle(const std::function<T(int)>& value) {
  constexpr int kThreads = 96;
  std::vector<T> in;
  for (int i = 0; i < kThreads; ++i) in.push_back(value(i));
  const buffer<T> from(in), to(kThreads);
  for (const int argument : {0, 1, 2, 5, 16, 31}) {
    run(shuffles<Kind, T>, {.grid = {1}, .block = {kThreads}}, from.data(), to.data(), argument);
    const std::vector<T> got = to.get();
    for (int i = 0; i < kThreads; ++i) {
      CHECK(got[i] == in[i / 32 * 32 + source_lane(Kind, i % 32, argument)]);
    }
  }
}

template <class T>
void check_shuffles(const std::function<T(int)>& value) {
  check_shuffle<kind::any_lane, T>(value);
  check_shuffle<kind::exclusive_or, T>(value);
  check_shuffle<kind::down, T>(value);
  check_shuffle<kind::up, T>(value);
}

struct pair {
  float x;
  int y;
  friend bool operator==(const pair&, const pair&) = default;
};

TEST(shuffles_of_2_bytes) {
  check_shuffles<uint16_t>([](int i) { return static_cast<uint16_t>(0xff00 + i); });
}
TEST(shuffles_of_4_bytes) {
  check_shuffles<int>([](int i) { return -1000000 * i; });
  check_shuffles<float>([](int i) { return 0.1f * i; });
}
TEST(shuffles_of_8_bytes) {
  check_shuffles<double>([](int i) { return 1.0 / (i + 1); });
  check_shuffles<int64_t>([](int i) { return (int64_t{i} << 40) - i; });
  check_shuffles<pair>([](int i) { return pair{0.5f * i, -i}; });
}

__global__ void votes(unsigned* out, unsigned yes) {
  const bool p = yes >> arch::lane_id() & 1;
  unsigned* mine = out + 3 * arch::thread_id();
  mine[0] = arch::vote_any(p);
  mine[1] = arch::vote_all(p);
  mine[2] = arch::ballot(p);
}

TEST(votes_of_a_warp) {
  for (const unsigned yes : {0u, 1u, 0x80000000u, 0x12345678u, 0xfffffffeu, 0xffffffffu}) {
    const buffer<unsigned> out(3 * 64);
    run(votes, {.grid = {1}, .block = {64}}, out.data(), yes);
    const std::vector<unsigned> got = out.get();
    for (int i = 0; i < 64; ++i) {
      CHECK_EQUAL(got[3 * i], yes != 0);
      CHECK_EQUAL(got[3 * i + 1], yes == 0xffffffffu);
      CHECK_EQUAL(got[3 * i + 2], yes);
    }
  }
}

}  // namespace
