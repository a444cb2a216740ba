// arch/tma.cuh: a tensor map in global memory, of which each load says that it is to be fenced.
#include "kittens/arch/arch.cuh"
#include "kittens/host/tensor_map.cuh"
#include "record.h"
#include "tensor_copies.h"

namespace {

using namespace kittens;
using namespace kittens::testing;

constexpr int kBox = 32 * 8, kBoxes = 4;

// Block b loads boxes one below the other, by a map of its own.
__global__ void loads_in_a_loop(const arch::tensor_map* maps, uint16_t* out) {
  auto* full = reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared());
  auto* box = reinterpret_cast<uint16_t*>(arch::dynamic_shared() + kBoxOffset);
  const int block = arch::block_x();
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(full, 1);
    arch::fence_mbarrier_init();
  }
  arch::sync_block();
  for (int i = 0; i < kBoxes; ++i) {
    if (arch::thread_id() == 0) {
      arch::mbarrier_arrive_expect_bytes(full, 2 * kBox);
      arch::tma_load(box, arch::fenced_tensor_map(maps + block), full, 8 * block, 8 * i);
    }
    arch::mbarrier_wait(full, i % 2);
    for (int j = arch::thread_id(); j < kBox; j += kThreads) {
      out[(block * kBoxes + i) * kBox + j] = box[j];
    }
    arch::fence_async_proxy();  // what has been read is written by the next load
    arch::sync_block();
  }
}

TEST(maps_in_global_memory) {
  std::vector<uint16_t> values(64 * 32);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(100 + i);
  const buffer<uint16_t> in(values);
  std::vector<arch::tensor_map> maps;
  for (const int swizzle : {0, 64}) {
    maps.push_back(host::encode_tensor_map({.data = in.data(),
                                            .kind = host::dtype::float16,
                                            .rank = 2,
                                            .extent = {64, 32},
                                            .stride_bytes = {128},
                                            .box = {32, 8},
                                            .swizzle_bytes = swizzle}));
  }
  const buffer<arch::tensor_map> in_memory(maps);
  const buffer<uint16_t> out(maps.size() * kBoxes * kBox);
  run(loads_in_a_loop,
      {.grid = {int(maps.size())}, .block = {kThreads}, .shared_bytes = kBoxOffset + 2 * kBox},
      in_memory.data(), out.data());
  record("fenced_tensor_map", out.get());
}

}  // namespace
