// CUDA's keywords in both worlds, and the project's own.
//
//   KITTENS_DEVICE     a function of the device
//   KITTENS_INLINE     a function of host and device
//   KITTENS_SIMULATED  1 when this translation unit is compiled for the simulator; only arch/ and
//                      host/ look at it
#pragma once

#if defined(__CUDACC__)

#define KITTENS_SIMULATED 0
#define KITTENS_DEVICE __device__ __forceinline__
#define KITTENS_INLINE __host__ __device__ __forceinline__

#else

#define KITTENS_SIMULATED 1

#if !__has_include("sim/api.hpp")
#error "kittens: compile with nvcc (a C++ compiler needs the simulator: csrc/ of the source tree)"
#endif

// The toolkit's own definitions of the keywords come first, because they would complain about ours.
#include <vector_types.h>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __grid_constant__
#undef __launch_bounds__
#undef __forceinline__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ __inline__ __attribute__((always_inline))
// Static shared memory would be one copy for all blocks. Take it from arch::dynamic_shared().
// (The preprocessor's own error: an assertion could not stand behind `static` or `extern`.)
#define __shared__ \
  _Pragma("GCC error \"the simulator has no __shared__: use arch::dynamic_shared()\"")

#define KITTENS_DEVICE __forceinline__
#define KITTENS_INLINE __forceinline__

#endif
