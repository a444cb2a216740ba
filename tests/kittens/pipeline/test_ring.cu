// pipeline/ring.cuh: a producer and its consumers go round the stages.
#include "tiles.h"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

using tile = st_fl<16, 32>;

template <int Stages>
struct shared {
  tile stage[Stages];
  ring<Stages> stages;
};

// TMA brings `count` tiles, two warps each add them all up.
template <int Stages>
__global__ void sums(const __grid_constant__ tma_map<tile> map, float* out, int count) {
  auto& s = *reinterpret_cast<shared<Stages>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) s.stages.init(2);
  arch::sync_block();
  cursor<Stages> at;
  if (warpid() == 2) {
    if (arch::elect_one()) {
      for (int i = 0; i < count; ++i, at.advance()) {
        s.stages.wait_empty(at);
        s.stages.expect(at, tma::bytes<tile>);
        tma::load_async(s.stage[at.stage], map, s.stages.full[at.stage], {0, 0, i, 0});
      }
    }
    return;
  }
  rt_fl<16, 32> sum, next;
  zero(sum);
  for (int i = 0; i < count; ++i, at.advance()) {
    s.stages.wait_full(at);
    load(next, s.stage[at.stage]);
    add(sum, sum, next);
    s.stages.release_after_loads(at);
  }
  testing::scatter(out + warpid() * tile::num_elements, sum);
}

template <int Stages>
void check_ring(int count) {
  std::vector<float> values;
  for (int i = 0; i < count * tile::num_elements; ++i) values.push_back(testing::exact_value(i));
  const buffer<float> in(values), out(size_t{2 * tile::num_elements});
  run(sums<Stages>, {.grid = {1}, .block = {96}, .shared_bytes = sizeof(shared<Stages>)},
      tma_map<tile>::of(gl<float>::matrix(in.data(), count * 16, 32, 32)), out.data(), count);
  testing::check_tile<rt_fl<32, 32>>(out.get(), [&](int row, int col) {
    float sum = 0.0f;
    for (int i = 0; i < count; ++i) sum += values[(i * 16 + row % 16) * 32 + col];
    return sum;
  });
}

TEST(every_consumer_sees_every_tile) {
  check_ring<1>(5);
  check_ring<2>(9);
  check_ring<3>(2);
  check_ring<4>(13);
}

TEST(a_cursor_goes_round) {
  cursor<3> at;
  for (int i = 0; i < 12; ++i, at.advance()) {
    CHECK_EQUAL(at.stage, i % 3);
    CHECK_EQUAL(at.phase, static_cast<uint32_t>(i / 3 % 2));
  }
}

// Two blocks of a cluster: each brings half of a tile's rows to both.
template <int Stages>
__global__ void shared_sums(const __grid_constant__ tma_map<tile> map, float* out, int count) {
  struct shared {
    struct {
      tile half[2];
    } stage[Stages];
    ring<Stages> stages;
  };
  auto& s = *reinterpret_cast<shared*>(arch::dynamic_shared());
  const int rank = arch::cluster_rank();
  if (arch::thread_id() == 0) s.stages.init(2);  // a consumer of each block
  arch::cluster_sync();
  cursor<Stages> at;
  if (warpid() == 1) {
    if (arch::elect_one()) {
      for (int i = 0; i < count; ++i, at.advance()) {
        s.stages.wait_empty(at);
        s.stages.expect(at, 2 * tma::bytes<tile>);
        tma::load_async_multicast(s.stage[at.stage].half[rank], map, s.stages.full[at.stage],
                                  {0, 0, 2 * i + rank, 0}, 0b11);
      }
    }
  } else {
    rt_fl<16, 32> sum, next;
    zero(sum);
    for (int i = 0; i < count; ++i, at.advance()) {
      s.stages.wait_full(at);
      for (int half = 0; half < 2; ++half) {
        load(next, s.stage[at.stage].half[half]);
        add(sum, sum, next);
      }
      s.stages.release_remote_after_loads(at, 2);
    }
    testing::scatter(out + rank * tile::num_elements, sum);
  }
  arch::cluster_sync();
}

TEST(blocks_of_a_cluster_share_their_stages) {
  constexpr int kCount = 7;
  std::vector<float> values;
  for (int i = 0; i < 2 * kCount * tile::num_elements; ++i) {
    values.push_back(testing::exact_value(i));
  }
  const buffer<float> in(values), out(size_t{2 * tile::num_elements});
  run(shared_sums<2>,
      {.grid = {2}, .block = {64}, .shared_bytes = 4 * sizeof(tile) + 64, .cluster = 2},
      tma_map<tile>::of(gl<float>::matrix(in.data(), 2 * kCount * 16, 32, 32)), out.data(), kCount);
  testing::check_tile<rt_fl<32, 32>>(out.get(), [&](int row, int col) {
    float sum = 0.0f;
    for (int i = 0; i < 2 * kCount; ++i) sum += values[(i * 16 + row % 16) * 32 + col];
    return sum;
  });
}

}  // namespace
