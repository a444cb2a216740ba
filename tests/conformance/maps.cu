// arch/tma.cuh: tensor maps in global memory, which each block fences before it uses them.
#include "kittens/arch/arch.cuh"
#include "kittens/host/tensor_map.cuh"
#include "record.h"
#include "tensor_copies.h"

namespace {

using namespace kittens;
using namespace kittens::testing;

constexpr int kBox = 32 * 8;

// Block b loads the box of b rows and columns further, by a map of its own.
__global__ void loads_by_maps_in_memory(const arch::tensor_map* maps, uint16_t* out) {
  auto* full = reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared());
  auto* box = reinterpret_cast<uint16_t*>(arch::dynamic_shared() + kBoxOffset);
  const int block = arch::block_x();
  if (arch::thread_id() == 0) {
    arch::fence_tensor_map(maps + block);
    arch::mbarrier_init(full, 1);
    arch::fence_mbarrier_init();
    arch::mbarrier_arrive_expect_bytes(full, 2 * kBox);
    arch::tma_load(box, maps + block, full, 8 * block, block);
  }
  arch::sync_block();
  arch::mbarrier_wait(full, 0);
  for (int i = arch::thread_id(); i < kBox; i += kThreads) out[block * kBox + i] = box[i];
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
  const buffer<uint16_t> out(maps.size() * kBox);
  run(loads_by_maps_in_memory,
      {.grid = {int(maps.size())}, .block = {kThreads}, .shared_bytes = kBoxOffset + 2 * kBox},
      in_memory.data(), out.data());
  record("fence_tensor_map", out.get());
}

}  // namespace
