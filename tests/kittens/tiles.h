// What the tests of the tile layer's tiles share: the tiles over which they run, values, and a way
// into registers and back that owes nothing to the loads and stores under test. Tiles of the host
// are float, row after row, whatever the tile under test holds.
//
//   template <class R>
//   __global__ void doubled(const float* in, float* out) {
//     R tile;
//     gather(tile, in);
//     add(tile, tile, tile);
//     scatter(out, tile);
//   }
//
//   TEST(doubles) {
//     for_each_register_tile([&]<class R>() {
//       const auto in = random_tile<R>(1);
//       check_tile<R>(run_on_tile(doubled<R>, in, R::num_elements), [&](int r, int c) {
//         return round_to<typename R::dtype>(2 * in[r * R::cols + c]);
//       });
//     });
//   }
#pragma once

#include <bit>
#include <limits>

#include "vectors.h"

namespace kittens::testing {

// ---- values

template <class T>
float round_to(float value) {
  return convert<float>(convert<T>(value));
}

// Values that every dtype holds exactly, different for neighbours in rows and columns.
template <class Tile>
std::vector<float> exact_tile() {
  std::vector<float> values;
  for (int i = 0; i < Tile::num_elements; ++i) values.push_back(exact_value(i));
  return values;
}

// Values of both signs around 1, as the tile's dtype holds them.
template <class Tile>
std::vector<float> random_tile(unsigned seed) {
  std::vector<float> values = random_values(Tile::num_elements, seed);
  for (float& value : values) value = round_to<typename Tile::dtype>(value);
  return values;
}

// ---- into registers and shared memory and back, by the one warp that calls

template <register_tile R>
KITTENS_DEVICE void gather(R& dst, const float* src, int row_stride = R::cols) {
  const int lane = arch::lane_id();
  for (int line = 0; line < R::lines; ++line) {
    for (int t = 0; t < R::line_tiles; ++t) {
      for (int p = 0; p < R::kPairs; ++p) {
        const int across = R::across(line, p, lane), along = R::along(t, p, lane);
        const float* at =
            src + (R::is_row ? across * row_stride + along : along * row_stride + across);
        dst.set(line, t, p, at[0], at[R::is_row ? 1 : row_stride]);
      }
    }
  }
}

template <register_tile R>
KITTENS_DEVICE void scatter(float* dst, const R& src, int row_stride = R::cols) {
  const int lane = arch::lane_id();
  for (int line = 0; line < R::lines; ++line) {
    for (int t = 0; t < R::line_tiles; ++t) {
      for (int p = 0; p < R::kPairs; ++p) {
        const int across = R::across(line, p, lane), along = R::along(t, p, lane);
        float* at = dst + (R::is_row ? across * row_stride + along : along * row_stride + across);
        src.get(at[0], at[R::is_row ? 1 : row_stride], line, t, p);
      }
    }
  }
}

template <register_vector V>
KITTENS_DEVICE void gather(V& dst, const float* src) {
  for (int c = 0; c < V::chunks; ++c) {
    float values[V::run_length];
    for (int i = 0; i < V::run_length; ++i) values[i] = src[V::first(c, arch::lane_id()) + i];
    dst.data[c].set(values);
  }
}

// Elements on which the lanes that hold them do not agree become NaN.
template <register_vector V>
KITTENS_DEVICE void scatter(float* dst, const V& src) {
  const int lane = arch::lane_id();
  for (int c = 0; c < V::chunks; ++c) {
    float values[V::run_length];
    src.data[c].get(values);
    for (int i = 0; i < V::run_length; ++i) {
      const unsigned bits = std::bit_cast<unsigned>(values[i]);
      const bool agree = arch::vote_all(arch::shuffle(bits, lane & V::lane_bits) == bits);
      const float nan = std::bit_cast<float>(0x7fc00000u);
      dst[V::first(c, lane) + i] = agree ? values[i] : nan;
    }
  }
}

template <shared_tile S>
KITTENS_DEVICE void gather(S& dst, const float* src) {
  for (int i = arch::lane_id(); i < S::num_elements; i += kWarp) {
    dst(i / S::cols, i % S::cols) = convert<typename S::dtype>(src[i]);
  }
  arch::sync_warp();
}

template <shared_tile S>
KITTENS_DEVICE void scatter(float* dst, const S& src) {
  arch::sync_warp();
  for (int i = arch::lane_id(); i < S::num_elements; i += kWarp) {
    dst[i] = convert<float>(src(i / S::cols, i % S::cols));
  }
}

// ---- padding (ducks::st_layout::swizzle_128)

// A tile with its padding, as a tile of more columns in the same memory.
template <shared_tile S>
using with_padding = st<typename S::dtype, S::rows, S::cols + S::padding_cols, typename S::layout>;
template <shared_tile S>
KITTENS_DEVICE with_padding<S>& with_padding_of(S& s) {
  return reinterpret_cast<with_padding<S>&>(s);
}

// NaNs in the padding, which nothing is to read; by the one warp that calls.
template <shared_tile S>
KITTENS_DEVICE void spoil_padding(S& dst) {
  for (int i = arch::lane_id(); i < S::rows * S::padding_cols; i += kWarp) {
    const int r = i % S::rows, c = S::cols + i / S::rows;
    dst(r, c) = convert<typename S::dtype>(std::bit_cast<float>(0x7fc00000u));
  }
  arch::sync_warp();
}

// ---- running and checking

// What `kernel(in, out)` leaves in the `n` floats of `out`, run by one warp.
inline std::vector<float> run_on_tile(void (*kernel)(const float*, float*),
                                      const std::vector<float>& in, int n, int shared_bytes = 0) {
  const buffer<float> source(in), out(static_cast<size_t>(n));
  run(kernel, {.grid = {1}, .block = {kWarp}, .shared_bytes = shared_bytes}, source.data(),
      out.data());
  return out.get();
}

// The first element that is more than `tolerance` from want(r, c); a NaN is close to a NaN alone.
template <class Tile, class Want>
void check_tile(const std::vector<float>& got, Want want, double tolerance = 0.0) {
  for (int i = 0; i < Tile::num_elements; ++i) {
    const double wanted = want(i / Tile::cols, i % Tile::cols);
    const bool both_nan = wanted != wanted && got[i] != got[i];
    if (both_nan || got[i] == wanted || std::fabs(got[i] - wanted) <= tolerance) continue;
    fail("tile", i,
         std::to_string(Tile::rows) + " × " + std::to_string(Tile::cols) + ", element (" +
             std::to_string(i / Tile::cols) + ", " + std::to_string(i % Tile::cols) + ") is " +
             to_text(got[i]) + ", not " + to_text(wanted));
    return;
  }
}

// ---- what the tests run over

template <class F>
void for_each_dtype(F f) {
  f.template operator()<float>();
  f.template operator()<bf16>();
  f.template operator()<half>();
}

// Calls f.operator()<rows, cols>().
template <class F>
void for_each_shape(F f) {
  f.template operator()<16, 16>();
  f.template operator()<16, 64>();
  f.template operator()<32, 48>();
  f.template operator()<64, 32>();
}

// Calls f.operator()<R>() for register tiles of every dtype, shape and layout.
template <class F>
void for_each_register_tile(F f) {
  for_each_dtype([&]<class T>() {
    for_each_shape([&]<int Rows, int Cols>() {
      f.template operator()<rt<T, Rows, Cols, ducks::rt_layout::row>>();
      f.template operator()<rt<T, Rows, Cols, ducks::rt_layout::col>>();
    });
  });
}

// Calls f.operator()<S>() for shared tiles of every dtype, shape and layout; chunks of 32, 64 and
// 128 bytes are among them, and padding.
template <class F>
void for_each_shared_tile(F f) {
  for_each_dtype([&]<class T>() {
    for_each_shape([&]<int Rows, int Cols>() {
      f.template operator()<st<T, Rows, Cols, ducks::st_layout::swizzle>>();
      f.template operator()<st<T, Rows, Cols, ducks::st_layout::naive>>();
    });
    f.template operator()<st<T, 32, 48, ducks::st_layout::swizzle_128>>();
  });
}

}  // namespace kittens::testing
