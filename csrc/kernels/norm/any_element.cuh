// Elements whose type is known at the launch, not before: float, half or bf16, at any address. What
// a norm's fast configurations leave over takes them (norm_configs.cuh), so that no kernel has to
// be compiled for each combination of types.
//
// In registers they are packed at first, as they lie in memory, in the room that their floats will
// take: a load then has a branch on the size of an element alone, and nothing behind it waits.
#pragma once

#include <cstdint>
#include <cstring>

#include <kittens.cuh>

#include "kernels/norm/norm.h"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

using namespace kittens;

// In place of an element type.
struct any_element {};

template <class T>
inline constexpr bool is_any = std::is_same_v<T, any_element>;

// A norm whose parameters say which it is: what it lacks is null, and a mean that it lacks is zero.
struct any_norm_kind {
  static constexpr bool centred = true, adds = true;
};

template <class Kind>
inline constexpr bool is_any_kind = std::is_same_v<Kind, any_norm_kind>;

KITTENS_DEVICE bool has_mean(norm_op op) {
  return op == norm_op::layer_norm || op == norm_op::add_layer_norm;
}

// Calls f with a null pointer to an element of `type`.
template <class F>
KITTENS_DEVICE void with_type(dtype type, const F& f) {
  switch (type) {
    case dtype::float32: return f(static_cast<float*>(nullptr));
    case dtype::float16: return f(static_cast<half*>(nullptr));
    case dtype::bfloat16: return f(static_cast<bf16*>(nullptr));
  }
}

// Whether a warp's runs of T move as a whole: they are aligned, and the last column ends one.
template <class V, class T>
KITTENS_DEVICE bool moves_whole_runs(const T* start, int columns) {
  constexpr int kRun = V::run_length;
  return columns % kRun == 0 && reinterpret_cast<uintptr_t>(start) % (kRun * sizeof(T)) == 0;
}

// dst = start[0 …], packed; zero from `columns` on.
template <bool EvictLast, register_vector V, class T>
KITTENS_DEVICE void load_packed_as(V& dst, const T* start, int columns) {
  constexpr int kRun = V::run_length;
  const int lane = arch::lane_id(), left = columns - V::first(0, lane);
  const auto keep = [&](int c, const lane_run<T, kRun>& run) {
    std::memcpy(static_cast<void*>(&dst.data[c]), &run, sizeof(run));
  };
  if (moves_whole_runs<V>(start, columns)) {
#pragma unroll
    for (int c = 0; c < V::chunks; ++c) {
      lane_run<T, kRun> run;
      using access = kittens::detail::run_access<T, kRun>;
      access::template load<EvictLast>(run, start + V::first(c, lane), V::first(c, 0) < left);
      keep(c, run);
    }
  } else {
#pragma unroll
    for (int c = 0; c < V::chunks; ++c) {
      lane_run<T, 1> elements[kRun];
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        kittens::detail::run_access<T, 1>::load(elements[i], start + V::first(c, lane) + i,
                                                V::first(c, 0) + i < left);
      }
      lane_run<T, kRun> run;
      kittens::detail::join(run, elements);
      keep(c, run);
    }
  }
}

// dst = elements first, first + 1, … of an array of `type`, packed; zero from `columns` on.
template <bool EvictLast = false, register_vector V>
KITTENS_DEVICE void load_packed(V& dst, const void* data, dtype type, int64_t first, int columns) {
  if (type == dtype::float32) {
    load_packed_as<EvictLast>(dst, static_cast<const float*>(data) + first, columns);
  } else {
    load_packed_as<EvictLast>(dst, static_cast<const bf16*>(data) + first, columns);  // or half
  }
}

template <register_vector V, class T>
KITTENS_DEVICE void store_packed_as(T* start, const V& src, int columns) {
  constexpr int kRun = V::run_length;
  const int lane = arch::lane_id(), left = columns - V::first(0, lane);
  const bool whole = moves_whole_runs<V>(start, columns);
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    lane_run<T, kRun> run;
    std::memcpy(static_cast<void*>(&run), &src.data[c], sizeof(run));
    T* dst = start + V::first(c, lane);
    if (whole) {
      kittens::detail::run_access<T, kRun>::store(dst, run, V::first(c, 0) < left);
    } else {
      lane_run<T, 1> elements[kRun];
      kittens::detail::split(elements, run);
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        kittens::detail::run_access<T, 1>::store(dst + i, elements[i], V::first(c, 0) + i < left);
      }
    }
  }
}

// The first `columns` of src, packed, become elements first, first + 1, … of an array of `type`.
template <register_vector V>
KITTENS_DEVICE void store_packed(void* data, dtype type, int64_t first, int columns, const V& src) {
  if (type == dtype::float32) {
    store_packed_as(static_cast<float*>(data) + first, src, columns);
  } else {
    store_packed_as(static_cast<bf16*>(data) + first, src, columns);  // or half
  }
}

// From packed elements to floats, and back.
template <class T, register_vector V>
KITTENS_DEVICE void unpack_as(V& v) {
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    lane_run<T, V::run_length> run;
    std::memcpy(static_cast<void*>(&run), &v.data[c], sizeof(run));
    convert_run(v.data[c], run);
  }
}
template <class T, register_vector V>
KITTENS_DEVICE void pack_as(V& v) {
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    lane_run<T, V::run_length> run;
    convert_run(run, v.data[c]);
    std::memcpy(static_cast<void*>(&v.data[c]), &run, sizeof(run));
  }
}
template <register_vector V>
KITTENS_DEVICE void unpack(V& v, dtype type) {
  with_type(type, [&]<class T>(T*) { unpack_as<T>(v); });
}
template <register_vector V>
KITTENS_DEVICE void pack(V& v, dtype type) {
  with_type(type, [&]<class T>(T*) { pack_as<T>(v); });
}

// dst = elements first, first + 1, … of a parameter, as floats; `otherwise` where there is none.
template <register_vector V>
KITTENS_DEVICE void load_any_parameter(V& dst, const void* data, dtype type, int64_t first,
                                       int columns, float otherwise) {
  if (data == nullptr) return fill(dst, otherwise);
  load_packed(dst, data, type, first, columns);
  unpack(dst, type);
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
