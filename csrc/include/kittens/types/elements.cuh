// From tensors as the host knows them to the element type and the width of the accesses of a
// kernel.
//
//   const bool aligned = in_runs_of_16_bytes({p.x, p.y}, {p.width * size, p.x_stride * size});
//   with_elements(p.type, aligned, [&]<class T, int Run>() { launch(kernel<config<T, Run>>, …); });
#pragma once

#include <cstdint>

#include "kittens/host/dtype.h"
#include "kittens/types/dtype.cuh"

namespace kittens {

// Whether all addresses and distances (in bytes) are multiples of 16. A null pointer is.
template <int Addresses>
bool in_runs_of_16_bytes(const void* const (&addresses)[Addresses]) {
  bool multiples = true;
  for (const void* p : addresses) multiples &= reinterpret_cast<uintptr_t>(p) % 16 == 0;
  return multiples;
}
template <int Addresses, int Distances>
bool in_runs_of_16_bytes(const void* const (&addresses)[Addresses],
                         const int64_t (&distances)[Distances]) {
  bool multiples = in_runs_of_16_bytes(addresses);
  for (const int64_t bytes : distances) multiples &= bytes % 16 == 0;
  return multiples;
}

// Calls f.operator()<T, Run>() with the element type and how many elements a lane moves at once: 16
// bytes of them where `aligned`, else one.
template <class F>
void with_elements(host::dtype type, bool aligned, F f) {
  const auto with_run = [&]<class T>(T) {
    if (aligned) {
      f.template operator()<T, 16 / int(sizeof(T))>();
    } else {
      f.template operator()<T, 1>();
    }
  };
  switch (type) {
    case host::dtype::float32: return with_run(float{});
    case host::dtype::float16: return with_run(half{});
    case host::dtype::bfloat16: return with_run(bf16{});
  }
}

}  // namespace kittens
