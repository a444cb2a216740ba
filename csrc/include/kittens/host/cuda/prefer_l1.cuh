// host/prefer_l1.cuh on the device.
#pragma once

#include "kittens/host/cuda/launch.cuh"

namespace kittens::host {

// Tells CUDA once a device, each thread for itself.
template <auto Kernel>
void prefer_l1() {
  const void* const function = reinterpret_cast<const void*>(Kernel);
  int device = 0;
  detail::check(cudaGetDevice(&device), function, "cannot find the current device");
  thread_local uint64_t told = 0;  // a bit of each device
  constexpr int kMostDevices = 64;
  const uint64_t bit = device < kMostDevices ? uint64_t{1} << device : 0;
  if ((told & bit) != 0) return;
  detail::check(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxL1),
                function, "cannot prefer the L1 cache");
  told |= bit;
}

}  // namespace kittens::host
