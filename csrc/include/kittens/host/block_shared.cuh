// Shared memory of a block, for kernels that come in forms of it.
//
//   for_block_shared_kb([&]<int Kb> { launch_form<Kb>(…); });
//
// Kb is what the build's architecture gives a block; but code of sm_80 runs on 8.6 and 8.9 too,
// which give less, and there Kb is what all do that it runs on. So a build has both forms.
//
//   int block_shared_kb()   what the current device gives a block
#pragma once

#include <algorithm>
#include <string>

#include "kittens/arch/keywords.cuh"
#include "kittens/host/device.h"

#if !KITTENS_SIMULATED
#include <cuda_runtime.h>
#endif

namespace kittens::host {

#if KITTENS_SIMULATED
inline int block_shared_kb() { return facts_of(architecture::simulator).block_shared_kb; }
#else
inline int block_shared_kb() {
  int index = 0, bytes = 0;
  cudaError_t status = cudaGetDevice(&index);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
  }
  if (status == cudaSuccess) return bytes / 1024;
  cudaGetLastError();  // ours is reported here; the next launch shall not find it
  throw error(std::string("block_shared_kb: no CUDA device: ") + cudaGetErrorString(status));
}
#endif

// Of the architectures on which code for `a` runs.
constexpr int least_block_shared_kb(architecture a) {
  const architecture_facts& own = facts_of(a);
  int least = own.block_shared_kb;
  for (const architecture_facts& other : kArchitectureFacts) {
    const bool runs = other.major == own.major && other.minor >= own.minor;
    if (runs) least = std::min(least, other.block_shared_kb);
  }
  return least;
}

// Returns what function.operator()<Kb>() does.
template <architecture Build = architecture::KITTENS_TARGET, class Function>
decltype(auto) for_block_shared_kb(Function&& function) {
  constexpr int kOwn = facts_of(Build).block_shared_kb, kLeast = least_block_shared_kb(Build);
  if constexpr (kLeast < kOwn) {
    if (block_shared_kb() < kOwn) return function.template operator()<kLeast>();
  }
  return function.template operator()<kOwn>();
}

}  // namespace kittens::host
