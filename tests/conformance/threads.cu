// arch/thread.cuh, arch/shuffle.cuh and arch/registers.cuh: places, exchange, votes, registers.
#include "kittens/arch/arch.cuh"
#include "record.h"

using namespace kittens;
using namespace kittens::testing;

namespace {

constexpr int kThreads = 96;

// ---- places

constexpr int kFields = 12;

__global__ void places(int* out) {
  const int block =
      (arch::block_z() * arch::grid_y() + arch::block_y()) * arch::grid_x() + arch::block_x();
  int* mine = out + (block * arch::block_threads() + arch::thread_id()) * kFields;
  const int fields[kFields] = {arch::thread_id(),     arch::lane_id(),      arch::warp_id(),
                               arch::block_threads(), arch::block_x(),      arch::block_y(),
                               arch::block_z(),       arch::grid_x(),       arch::grid_y(),
                               arch::grid_z(),        arch::cluster_rank(), arch::cluster_blocks()};
  for (int i = 0; i < kFields; ++i) mine[i] = fields[i];
}

TEST(places) {
  for (const int cluster : {1, 2, 4, 8}) {
    constexpr int kX = 8, kY = 3, kZ = 2;
    const buffer<int> out(kX * kY * kZ * kThreads * kFields);
    run(places, {.grid = {kX, kY, kZ}, .block = {kThreads}, .cluster = cluster}, out.data());
    record("places.clusters_of_" + to_text(cluster), out.get());
  }
}

// How many lanes are elected, and whether they are the same the second time. Which one is not said.
__global__ void elects(unsigned* out) {
  const bool first = arch::elect_one(), second = arch::elect_one();
  unsigned* mine = out + 2 * arch::thread_id();
  mine[0] = static_cast<unsigned>(arch::popc(arch::ballot(first)));
  mine[1] = first == second ? 1 : 0;
}

TEST(elect_one) {
  const buffer<unsigned> out(2 * kThreads);
  run(elects, {.grid = {1}, .block = {kThreads}}, out.data());
  record("elect_one", out.get());
}

// ---- shuffles

// [argument][thread] for shuffle, shuffle_xor, shuffle_down and shuffle_up.
template <class T>
__global__ void shuffles(const T* in, T* out) {
  const int i = arch::thread_id();
  const T v = in[i];
  for (int argument = 0; argument < 32; ++argument) {
    T* mine = out + 4 * argument * kThreads + i;
    mine[0] = arch::shuffle(v, argument);
    mine[kThreads] = arch::shuffle_xor(v, argument);
    mine[2 * kThreads] = arch::shuffle_down(v, argument);
    mine[3 * kThreads] = arch::shuffle_up(v, argument);
  }
}

// Lanes that each ask for another one, also by a number past the end.
template <class T>
__global__ void asks(const T* in, T* out) {
  const int i = arch::thread_id(), lane = arch::lane_id();
  out[i] = arch::shuffle(in[i], (lane * 7 + 3) % 32);
  out[kThreads + i] = arch::shuffle(in[i], lane + 40);
}

template <class T>
void record_shuffles() {
  std::vector<T> values;
  for (int i = 0; i < kThreads; ++i) {
    values.push_back(static_cast<T>(static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15u));
  }
  const buffer<T> in(values), out(4 * 32 * kThreads), asked(2 * kThreads);
  run(shuffles<T>, {.grid = {1}, .block = {kThreads}}, in.data(), out.data());
  run(asks<T>, {.grid = {1}, .block = {kThreads}}, in.data(), asked.data());
  record("shuffles.bytes_" + to_text(sizeof(T)), out.get());
  record("shuffle.of_each_lane.bytes_" + to_text(sizeof(T)), asked.get());
}

TEST(shuffles) {
  record_shuffles<uint16_t>();
  record_shuffles<uint32_t>();
  record_shuffles<uint64_t>();
}

__global__ void votes(unsigned* out, unsigned yes) {
  const bool p = (yes >> arch::lane_id() & 1) != 0;
  unsigned* mine = out + 3 * arch::thread_id();
  mine[0] = arch::vote_any(p);
  mine[1] = arch::vote_all(p);
  mine[2] = arch::ballot(p);
}

TEST(votes) {
  for (const unsigned yes : {0u, 1u, 0x80000000u, 0x12345678u, 0xfffffffeu, 0xffffffffu}) {
    const buffer<unsigned> out(3 * kThreads);
    run(votes, {.grid = {1}, .block = {kThreads}}, out.data(), yes);
    record("votes.of_" + to_text(yes), out.get());
  }
}

// ---- registers

constexpr int kManyThreads = 384;

// The first warpgroup gives up what the two others ask for; each still has what it held.
__global__ void __launch_bounds__(kManyThreads, 1) registers(int* out) {
  const int warpgroup = arch::warp_id() / 4;
  int held[4];
  for (int i = 0; i < 4; ++i) held[i] = out[kManyThreads * i + arch::thread_id()];
  if (warpgroup == 0) {
    arch::lower_registers<24>();
  } else {
    arch::raise_registers<240>();
  }
  arch::sync_block();
  for (int i = 0; i < 4; ++i) {
    out[kManyThreads * i + arch::thread_id()] = arch::shuffle_xor(held[i], 1) + warpgroup;
  }
}

TEST(registers) {
  std::vector<int> values;
  for (int i = 0; i < 4 * kManyThreads; ++i) values.push_back(5 * i);
  const buffer<int> out(values);
  run(registers, {.grid = {1}, .block = {kManyThreads}}, out.data());
  record("registers", out.get());
}

}  // namespace
