// For the simulator: what stands in the place of CUDA's own words in the kernels of this folder.
#pragma once

#include "kittens/arch/arch.cuh"
#include "kittens/host/launch.cuh"
#include "kittens/host/tensor_map.cuh"

#if KITTENS_SIMULATED
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaFree(kittens::arch::tensor_map* map) {
  delete map;
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, int) {
  return cudaSuccess;
}
#endif

namespace kittens::testing {

// `__shared__ T x;`: one of sixteen places of 64 bytes in front of the dynamic shared memory.
inline constexpr int kStaticBytes = 1024;
template <class T, int Place>
KITTENS_DEVICE T& static_shared() {
  static_assert(sizeof(T) <= 64 && Place < 16);
  return *reinterpret_cast<T*>(arch::dynamic_shared() + 64 * Place);
}
template <class T>
KITTENS_DEVICE T& dynamic_shared() {
  return *reinterpret_cast<T*>(arch::dynamic_shared() + kStaticBytes);
}

template <class... P>
void launch_classic(void (*kernel)(P...), dim3 grid, int threads, int shared_bytes, cudaStream_t,
                    std::type_identity_t<P>... arguments) {
  host::launch(kernel,
               {.grid = {int64_t{grid.x}, int64_t{grid.y}, int64_t{grid.z}},
                .block = {threads},
                .shared_bytes = kStaticBytes + shared_bytes},
               nullptr, arguments...);
}

}  // namespace kittens::testing
