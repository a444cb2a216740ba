// Maths on tiles and vectors in shared memory, by one warp or by a group of warps together; and, of
// a group, on the tiles that its warps hold in registers.
//
//   add(st, st, st)   exp(sv, sv)   mul_row(st, st, sv)   row_sum(sv, st)   tril(st, st, 0, 0.0f)
//   warpgroup::add(st, st, st)   …          four warps together
//   warpgroup::add(rt, rt, rt)   …          each warp its own part, of which warp 0 has the top
//   rows
//
// The operands of a call have one shape; their layouts and element types may differ, so copy(st,
// st) also changes a tile's layout. 16-bit elements are computed in float and rounded once. Each
// thread reads and writes elements of its own: what others wrote is there after a barrier, and what
// this call writes is there for them after the next. Calls that write a shared tile end with the
// writer's proxy fence (on sm_90), as in ops/global/tile_load_store.cuh; map_unfenced,
// copy_unfenced … are without. Shared vectors are for threads alone, and their maps never end with
// it.
#pragma once

#include "kittens/arch/fence.cuh"
#include "kittens/ops/register/tile_mask.cuh"
#include "kittens/ops/register/tile_reduce.cuh"
#include "kittens/ops/shared/reductions.cuh"
#include "kittens/ops/shared/traversal.cuh"

namespace kittens {

namespace detail {

template <class D>
KITTENS_DEVICE void fence_writes(const D&) {
  if constexpr (shared_tile<D>) arch::fence_async_proxy();
}

// A vector with one value per row, or column, of a shared tile. Returns whether it is one, so that
// the compiler looks no further else.
template <bool PerRow, class S, class V>
KITTENS_INLINE constexpr bool check_shared_vec() {
  static_assert(shared_vector<V>,
                "the values of a shared tile's rows or columns are a shared vector");
  if constexpr (shared_vector<V>) {
    constexpr bool kFits = V::length == (PerRow ? S::rows : S::cols);
    static_assert(!PerRow || kFits,
                  "the shared vector must have one value per row of the shared tile");
    static_assert(PerRow || kFits,
                  "the shared vector must have one value per column of the shared tile");
    return kFits;
  }
  return false;
}

}  // namespace detail

// By Warps warps. Members named …_unfenced leave the proxy fence to the caller.
template <int Warps>
struct tile_elementwise {
  template <class F, operand D, class... S>
  KITTENS_DEVICE static void map_unfenced(F f, D& dst, const S&... src) {
    if constexpr (in_registers<D>) {
      kittens::map(f, dst, src...);
    } else if constexpr (shared_tile<D>) {
      detail::map_elements<Warps>([=](int, int, auto... x) { return f(x...); }, dst, src...);
    } else {
      detail::map_elements<Warps>([=](int, auto... x) { return f(x...); }, dst, src...);
    }
  }
  // f(element, value of its row); map_cols: f(element, value of its column).
  template <class F, tile D, class S, class V>
  KITTENS_DEVICE static void map_rows_unfenced(F f, D& dst, const S& src, const V& vec) {
    if constexpr (register_tile<D>) {
      kittens::map_rows(f, dst, src, vec);
    } else if constexpr (detail::check_shared_vec<true, D, V>()) {
      detail::map_runs<Warps>(
          [&](auto& out, int row, int, const auto& x) {
            const float y = detail::element_at(vec, row);
#pragma unroll
            for (int i = 0; i < int(sizeof(out) / sizeof(float)); ++i) out[i] = f(x[i], y);
          },
          dst, src);
    }
  }
  template <class F, tile D, class S, class V>
  KITTENS_DEVICE static void map_cols_unfenced(F f, D& dst, const S& src, const V& vec) {
    if constexpr (register_tile<D>) {
      kittens::map_cols(f, dst, src, vec);
    } else if constexpr (detail::check_shared_vec<false, D, V>()) {
      detail::map_runs<Warps>(
          [&](auto& out, int, int col, const auto& x) {
            float y[sizeof(out) / sizeof(float)];
            detail::load_elements_at(y, vec, col);
#pragma unroll
            for (int i = 0; i < int(sizeof(out) / sizeof(float)); ++i) out[i] = f(x[i], y[i]);
          },
          dst, src);
    }
  }
  template <operand D, operand S>
  KITTENS_DEVICE static void copy_unfenced(D& dst, const S& src) {
    if constexpr (in_registers<D>) {
      kittens::copy(dst, src);
    } else {
      detail::copy_runs<Warps>(dst, src);
    }
  }

  template <class F, operand D, class... S>
  KITTENS_DEVICE static void map(F f, D& dst, const S&... src) {
    map_unfenced(f, dst, src...);
    detail::fence_writes(dst);
  }
  template <class F, tile D, class S, class V>
  KITTENS_DEVICE static void map_rows(F f, D& dst, const S& src, const V& vec) {
    map_rows_unfenced(f, dst, src, vec);
    detail::fence_writes(dst);
  }
  template <class F, tile D, class S, class V>
  KITTENS_DEVICE static void map_cols(F f, D& dst, const S& src, const V& vec) {
    map_cols_unfenced(f, dst, src, vec);
    detail::fence_writes(dst);
  }
  template <operand D, operand S>
  KITTENS_DEVICE static void copy(D& dst, const S& src) {
    copy_unfenced(dst, src);
    detail::fence_writes(dst);
  }

  // ---- by name

  template <operand D>
  KITTENS_DEVICE static void fill(D& dst, float value) {
    map(detail::constant{value}, dst);
  }
  template <operand D>
  KITTENS_DEVICE static void zero(D& dst) {
    fill(dst, 0.0f);
  }
  template <operand D>
  KITTENS_DEVICE static void one(D& dst) {
    fill(dst, 1.0f);
  }
  // Columns `first` to `end` − 1 of a swizzled tile, its padding included; both in pieces of 16
  // bytes.
  template <swizzled_tile D>
  KITTENS_DEVICE static void fill_columns(D& dst, int first, int end, float value) {
    using T = typename D::dtype;
    constexpr int kRun = 16 / sizeof(T);
    float values[kRun];
#pragma unroll
    for (float& x : values) x = value;
    lane_run<T, kRun> run;
    run.set(values);
    const int runs = (end - first) / kRun;
#pragma unroll 1
    for (int i = detail::group_thread<Warps>(); i < runs * D::rows; i += Warps * kWarp) {
      T* const to = &dst.data[D::index(i / runs, first + i % runs * kRun)];
      detail::run_access<T, kRun>::store_shared(to, run);
    }
    detail::fence_writes(dst);
  }
  // The ones beside a tile (types/shared_tile.cuh).
  template <tile_with_ones D>
  KITTENS_DEVICE static void set_ones(D& dst) {
    if constexpr (requires { dst.ones; }) {
      one(dst.ones);
    } else {
      fill_columns(dst.tile, D::cols, D::cols + 8, 1.0f);
    }
  }
  template <operand D>
  KITTENS_DEVICE static void pos_infty(D& dst) {
    fill(dst, kInfinity);
  }
  template <operand D>
  KITTENS_DEVICE static void neg_infty(D& dst) {
    fill(dst, -kInfinity);
  }

#define KITTENS_GROUP_UNARY(name)                         \
  template <operand D, operand S>                         \
  KITTENS_DEVICE static void name(D& dst, const S& src) { \
    map(detail::name##_function{}, dst, src);             \
  }
  KITTENS_GROUP_UNARY(exp)
  KITTENS_GROUP_UNARY(exp2)
  KITTENS_GROUP_UNARY(log)
  KITTENS_GROUP_UNARY(log2)
  KITTENS_GROUP_UNARY(abs)
  KITTENS_GROUP_UNARY(relu)
#undef KITTENS_GROUP_UNARY

#define KITTENS_GROUP_BINARY(name)                                            \
  template <operand D, operand A, operand B>                                  \
  KITTENS_DEVICE static void name(D& dst, const A& a, const B& b) {           \
    map(detail::name##_function{}, dst, a, b);                                \
  }                                                                           \
  template <operand D, operand A>                                             \
  KITTENS_DEVICE static void name(D& dst, const A& a, float y) {              \
    map(detail::with_number<detail::name##_function>{y}, dst, a);             \
  }                                                                           \
  template <tile D, tile S, class V>                                          \
  KITTENS_DEVICE static void name##_row(D& dst, const S& src, const V& vec) { \
    map_rows(detail::name##_function{}, dst, src, vec);                       \
  }                                                                           \
  template <tile D, tile S, class V>                                          \
  KITTENS_DEVICE static void name##_col(D& dst, const S& src, const V& vec) { \
    map_cols(detail::name##_function{}, dst, src, vec);                       \
  }
  KITTENS_GROUP_BINARY(add)
  KITTENS_GROUP_BINARY(sub)
  KITTENS_GROUP_BINARY(mul)
  KITTENS_GROUP_BINARY(div)
  KITTENS_GROUP_BINARY(max)
  KITTENS_GROUP_BINARY(min)
#undef KITTENS_GROUP_BINARY

  template <operand D, operand A, operand B, operand C>
  KITTENS_DEVICE static void fma(D& dst, const A& a, const B& b, const C& c) {
    map(detail::fma_function{}, dst, a, b, c);
  }

  // dst[r][c] = vec[r]; broadcast_col: vec[c].
  template <tile D, class V>
  KITTENS_DEVICE static void broadcast_row(D& dst, const V& vec) {
    if constexpr (register_tile<D>) {
      kittens::broadcast_row(dst, vec);
    } else if constexpr (detail::check_shared_vec<true, D, V>()) {
      detail::map_elements<Warps>([&](int r, int) { return detail::element_at(vec, r); }, dst);
      arch::fence_async_proxy();
    }
  }
  template <tile D, class V>
  KITTENS_DEVICE static void broadcast_col(D& dst, const V& vec) {
    if constexpr (register_tile<D>) {
      kittens::broadcast_col(dst, vec);
    } else if constexpr (detail::check_shared_vec<false, D, V>()) {
      detail::map_elements<Warps>([&](int, int c) { return detail::element_at(vec, c); }, dst);
      arch::fence_async_proxy();
    }
  }
};

// ---- by one warp; the named ones are in ops/register/vector_map.cuh and ops/register/tile_map.cuh

template <class F, in_shared D, class... S>
KITTENS_DEVICE void map(F f, D& dst, const S&... src) {
  tile_elementwise<1>::map(f, dst, src...);
}
template <class F, shared_tile D, class S, class V>
KITTENS_DEVICE void map_rows(F f, D& dst, const S& src, const V& vec) {
  tile_elementwise<1>::map_rows(f, dst, src, vec);
}
template <class F, shared_tile D, class S, class V>
KITTENS_DEVICE void map_cols(F f, D& dst, const S& src, const V& vec) {
  tile_elementwise<1>::map_cols(f, dst, src, vec);
}
template <in_shared D, in_shared S>
KITTENS_DEVICE void copy(D& dst, const S& src) {
  tile_elementwise<1>::copy(dst, src);
}
template <class F, in_shared D, class... S>
KITTENS_DEVICE void map_unfenced(F f, D& dst, const S&... src) {
  tile_elementwise<1>::map_unfenced(f, dst, src...);
}
template <class F, shared_tile D, class S, class V>
KITTENS_DEVICE void map_rows_unfenced(F f, D& dst, const S& src, const V& vec) {
  tile_elementwise<1>::map_rows_unfenced(f, dst, src, vec);
}
template <class F, shared_tile D, class S, class V>
KITTENS_DEVICE void map_cols_unfenced(F f, D& dst, const S& src, const V& vec) {
  tile_elementwise<1>::map_cols_unfenced(f, dst, src, vec);
}
template <in_shared D, in_shared S>
KITTENS_DEVICE void copy_unfenced(D& dst, const S& src) {
  tile_elementwise<1>::copy_unfenced(dst, src);
}
template <shared_tile D, class V>
KITTENS_DEVICE void broadcast_row(D& dst, const V& vec) {
  tile_elementwise<1>::broadcast_row(dst, vec);
}
template <shared_tile D, class V>
KITTENS_DEVICE void broadcast_col(D& dst, const V& vec) {
  tile_elementwise<1>::broadcast_col(dst, vec);
}

}  // namespace kittens
