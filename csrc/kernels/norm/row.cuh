// What the norms share: a row spread over the warps of a group, its sums, and its parameters.
//
// Kernels live in an inline namespace of their target: one file is compiled for several targets,
// and the linker would merge the host sides of their template kernels.
#pragma once

#include <kittens.cuh>

#include "kernels/norm/norm.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kMaxWarps = 32;

// How the host spreads a row over a group of warps.
struct row_layout {
  int warps;
  float inverse_width;
};

// Adds each of the Count values over the `warps` warps of this thread's group, in a fixed order;
// every thread gets the sums. The values are the same in all lanes of a warp.
//
// `Count` floats per warp lie in shared memory, twice: a sum writes one half while slower warps may
// still read the other, so one barrier a call is enough. They are read by fours, and zeros complete
// the last four.
template <int Count, int MaxWarps = kMaxWarps>
struct group_sum {
  static constexpr int kAtOnce = 4, kPlaces = (MaxWarps + kAtOnce - 1) / kAtOnce * kAtOnce;
  struct shared {
    alignas(16) float partial[2][Count][kPlaces];
  };

  shared& scratch;
  int warp, warps;  // of the group
  int barrier;      // a named barrier of the group's own
  int half = 0;

  KITTENS_DEVICE void operator()(float (&value)[Count]) {
    if (warps == 1) return;
    auto& partial = scratch.partial[half];
    half ^= 1;
    const int lane = arch::lane_id();
    if (lane == 0 || (warp == warps - 1 && warp % kAtOnce + lane < kAtOnce)) {
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        arch::store_shared(&partial[i][warp + lane], lane == 0 ? value[i] : 0.0f);
      }
    }
    arch::named_barrier_sync(barrier, warps * kWarp);
#pragma unroll
    for (int i = 0; i < Count; ++i) value[i] = 0.0f;
#pragma unroll
    for (int w = 0; w < kPlaces; w += kAtOnce) {
      if (w >= warps) break;
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        const float4 of_warps = arch::load_shared(reinterpret_cast<const float4*>(&partial[i][w]));
        value[i] += of_warps.x;
        value[i] += of_warps.y;
        value[i] += of_warps.z;
        value[i] += of_warps.w;
      }
    }
  }
};

// The rows of a matrix on their way to a warp: its slice of rows r, r + stride, …, each loaded
// while the Stages − 1 before it are worked on. A lane reads back only what it copied itself, so
// waiting for its own copies is all it needs; a slot is written again one row after it was read.
template <class T, register_vector V, int Stages>
struct row_stream {
  using type = T;
  using slot = sv<T, V::length>;
  static constexpr int kSharedBytes = Stages * int(sizeof(slot));  // of a warp

  gl<const T, 1, 1> source;
  slot* slots;  // [Stages] of this warp
  int64_t row, stride;
  int slice;
  int at = 0;

  KITTENS_DEVICE row_stream(const gl<const T, 1, 1>& source, void* shared, int64_t first_row,
                            int64_t stride, int slice)
      : source(source),
        slots(static_cast<slot*>(shared)),
        row(first_row),
        stride(stride),
        slice(slice) {}

  // Before the first row is read.
  KITTENS_DEVICE void start() {
    for (int i = 0; i < Stages - 1; ++i) request(i);
  }

  // The row at hand, as far as it has columns; zero past the last.
  KITTENS_DEVICE void read(V& to) {
    arch::cp_async_wait<Stages - 2>();
    load(to, slots[at]);
  }
  // To the next one, once all of this one was read.
  KITTENS_DEVICE void advance() {
    request(at == 0 ? Stages - 1 : at - 1);
    at = at == Stages - 1 ? 0 : at + 1;
  }

 private:
  // Past the last row an empty group is committed, so that the count of groups stays right.
  KITTENS_DEVICE void request(int to) {
    if (row < source.rows) {
      load_async<typename V::layout>(slots[to], source, {.r = row, .c = slice});
    }
    row += stride;
    arch::cp_async_commit();
  }
};

// How far from the matrix' first element row r starts.
KITTENS_DEVICE int64_t row_offset(const row_strides& rows, int64_t r) {
  if (rows.count == 1) return r * rows.outer;
  const uint32_t quotient = uint32_t(uint64_t(uint32_t(r)) * rows.magic >> 32) >> rows.shift;
  const uint32_t remainder = uint32_t(r) - quotient * rows.count;
  return quotient * rows.outer + remainder * rows.inner;
}

// dst = this warp's slice of a [width] parameter, of type T or float32; `otherwise` where null.
template <class T, register_vector V>
KITTENS_DEVICE void load_parameter(V& dst, const void* data, dtype type, int64_t width,
                                   int64_t slice, float otherwise) {
  if (data == nullptr) {
    fill(dst, otherwise);
  } else if (type == dtype::float32) {
    load(dst, gl<const float, 1, 1, 1>::vector(static_cast<const float*>(data), width),
         {.c = slice});
  } else {
    load(dst, gl<const T, 1, 1, 1>::vector(static_cast<const T*>(data), width), {.c = slice});
  }
}

// The same of a norm's weight: ones where null, else its elements and `offset`, where Kind has one.
template <class Kind, class T, register_vector V>
KITTENS_DEVICE void load_weight(V& dst, const void* data, dtype type, int64_t width, int64_t slice,
                                float offset) {
  load_parameter<T>(dst, data, type, width, slice, 1.0f);
  if (!Kind::centred && offset != 0.0f) add(dst, dst, offset);
}

// A [rows, width] matrix of which this kernel knows only the address.
template <class T>
KITTENS_DEVICE gl<T, 1, 1> matrix(std::conditional_t<std::is_const_v<T>, const void, void>* data,
                                  int64_t rows, int64_t width, int64_t stride) {
  return gl<T, 1, 1>::matrix(static_cast<T*>(data), rows, width, stride);
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
