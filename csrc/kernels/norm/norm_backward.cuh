// The norms, backward, with ŝ = (s − mean) · rstd (without a mean: s · rstd) and g = dy · weight,
// per row s of x, or of the saved sum of dropout(x) and a residual:
//
//   ds = rstd · (g − mean(g) − ŝ · mean(g · ŝ)) + dsum      without mean(g) in kinds without a mean
//   dresidual = ds,             dx = ds · mask / (1 − p)
//   dweight = Σ_rows dy · ŝ,    dbias = Σ_rows dy           no dbias in kinds without a mean
//
//   dy, s, dsum [rows, width], mean, rstd [rows] → dx, dresidual [rows, width], dweight, dbias
//   [width]
//
// Memory-bound: dy, s and dsum are read once, dx and dresidual written once. Persistent blocks walk
// over the rows with a stride; each thread keeps the running sums of its columns' dweight and dbias
// in registers. The next row's dy and s are loaded before this row's sums are taken.
//
//   few rows        norm_backward_few.cuh: all gradients in one launch; the plan says how few
//   width ≤ 256     norm_backward_narrow.cuh: a few lanes a row
//   medium rows     norm_backward_medium.cuh, many of them; norm_configs.cuh says which
//   long rows       norm_backward_pipelined.cuh; norm_configs.cuh says which
//   block           groups × warps; a group works on one row, a warp on 512 of its columns
//   per row         one sum over the group's warps (three numbers), one barrier
//   at the end      the groups' dweight and dbias are added in order, through shared memory, into
//                   one row of `partial` [2, partial_rows, width] a block, and those in order by
//                   norm_backward_reduce: the same bits on every run
//   width > 8192    norm_backward_long.cuh: rows are read twice
//
// norm_configs.cuh says which kinds and element types have kernels of their own; all else is for
// those of any_element.cuh, whose loads are as late as they are needed.
//
// Numerics: the mean as saved is rounded to float. What it lacks, delta = mean(s − mean), corrects
// ŝ where a row is read as a whole: everywhere but in the weights' gradients of few rows and of
// wide ones.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/norm/any_element.cuh"
#include "kernels/norm/dropout.cuh"
#include "kernels/norm/norm.h"
#include "kernels/norm/row.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

// As norm_forward_config; or any_norm_kind and any_element, in runs of 4, which may lie anywhere.
template <class Kind, class T, int Run, class R = T>
struct norm_backward_config {
  using kind = Kind;
  using type = T;
  using residual_type = R;  // of s as well
  static constexpr int length = norm_backward_shape::kWarpColumns;
  using layout = ducks::rv_layout::runs<Run>;
  using vector = rv<float, length, layout>;
  // As loaded: packed pairs, or floats where elements come one by one (a 16-bit element alone would
  // take a register all the same, and its float another) or are of any type.
  static constexpr bool in_pairs = Run > 1 && !is_any<T>;
  template <class E>
  using loaded = rv<std::conditional_t<in_pairs, E, float>, length, layout>;
  using loaded_dy = loaded<T>;
  using loaded_s = loaded<R>;
  static constexpr int sums = Kind::centred ? 3 : 1;
  static constexpr int max_threads = 512;
  // The next row is loaded early where it fits in the 128 registers a thread has: two bytes an
  // element, and one address a run. (float, and single elements, would spill 40 … 72 bytes.)
  static constexpr bool prefetch = in_pairs && sizeof(T) == 2 && sizeof(R) == 2;
  // Elsewhere at the end of the row before, or (any element: else ptxas spills) when it is used.
  static constexpr bool loads_ahead = !is_any<T>;
  // Of dsum, it is then on its way to shared memory.
  static constexpr bool streams = Kind::adds && prefetch;
  using stream = row_stream<std::conditional_t<streams, R, float>, vector, 2>;
  static constexpr int stream_bytes = streams ? stream::kSharedBytes : 0;  // of a warp
};

template <class Config>
KITTENS_DEVICE bool has_mean(const norm_backward_params& p) {
  return is_any_kind<typename Config::kind> ? p.mean != nullptr : Config::kind::centred;
}

// dst = slice of row r of a matrix of T, or of `type`: packed if it is any.
template <class T, register_vector V>
KITTENS_DEVICE void load_slice(V& dst, const void* data, dtype type, const norm_backward_params& p,
                               int64_t stride, int64_t r, int64_t slice) {
  if constexpr (is_any<T>) {
    const int64_t first = slice * V::length;
    load_packed(dst, data, type, r * stride + first, int(p.width - first));
  } else {
    load(dst, matrix<const T>(data, p.rows, p.width, stride), {.r = r, .c = slice});
  }
}

// What of load_slice's is packed becomes floats.
template <class T, register_vector V>
KITTENS_DEVICE void unpack_slice(V& v, dtype type) {
  if constexpr (is_any<T>) unpack(v, type);
}

// Its counterpart: a slice of row r of a contiguous matrix.
template <class T, register_vector V>
KITTENS_DEVICE void store_slice(void* data, dtype type, const norm_backward_params& p, const V& src,
                                int64_t r, int64_t slice) {
  if constexpr (is_any<T>) {
    const int64_t first = slice * V::length;
    V packed = src;
    pack(packed, type);
    store_packed(data, type, r * p.width + first, int(p.width - first), packed);
  } else {
    store(matrix<T>(data, p.rows, p.width, p.width), src, {.r = r, .c = slice});
  }
}

// One row on its way: what a warp has loaded of it.
template <class Config>
struct loaded_row {
  typename Config::loaded_dy dy;
  typename Config::loaded_s s;
  float mean = 0.0f, rstd;

  KITTENS_DEVICE void load_from(const norm_backward_params& p, int64_t r, int64_t slice) {
    load_slice<typename Config::type>(dy, p.dy, p.type, p, p.dy_rows.outer, r, slice);
    load_slice<typename Config::residual_type>(s, p.x, p.residual_type, p, p.x_rows.outer, r,
                                               slice);
    if (has_mean<Config>(p)) mean = arch::load_global(p.mean + r);
    rstd = arch::load_global(p.rstd + r);
  }
  // Before the row is used.
  KITTENS_DEVICE void unpack(const norm_backward_params& p) {
    unpack_slice<typename Config::type>(dy, p.type);
    unpack_slice<typename Config::residual_type>(s, p.residual_type);
  }
  // d = s − mean, zero past the last column.
  KITTENS_DEVICE void centre(typename Config::vector& d, int columns) const {
    if constexpr (Config::kind::centred) {
      sub(d, s, mean);
      right_fill(d, d, columns, 0.0f);
    } else {
      copy(d, s);
    }
  }
};

// dst = a slice of the weight and its offset; ones where it is null.
template <class Config, register_vector V>
KITTENS_DEVICE void load_weight_slice(V& dst, const norm_backward_params& p, int64_t slice) {
  using T = typename Config::type;
  if constexpr (is_any<T>) {
    const int64_t first = slice * V::length;
    load_any_parameter(dst, p.weight, p.weight_type, first, int(p.width - first), 1.0f);
    if (p.weight_offset != 0.0f) add(dst, dst, p.weight_offset);
  } else {
    load_weight<typename Config::kind, T>(dst, p.weight, p.weight_type, p.width, slice,
                                          p.weight_offset);
  }
}

// The sums of a row from which its gradient follows, over this warp's columns: Σ d, Σ g, Σ g·d;
// without a mean Σ g·d alone, or of any kind the others zero.
template <class Config, class V, class DY>
KITTENS_DEVICE void row_sums(float (&sums)[Config::sums], const V& d, const DY& dy, const V& weight,
                             bool has_mean) {
  V g;
  mul(g, dy, weight);
  if constexpr (Config::kind::centred) {
    sum(sums[0], d);
    sum(sums[1], g);
    if (!has_mean) sums[0] = sums[1] = 0.0f;
  }
  dot(sums[Config::sums - 1], g, d);
}

// What those sums over the whole row say of each of its elements.
template <class Kind>
struct row_gradient {
  float rstd, shift = 0.0f, mean_g = 0.0f, mean_gx;  // the last: mean(g · ŝ)

  KITTENS_DEVICE row_gradient(const float (&sums)[3], float rstd, float inverse_width)
      : rstd(rstd) {
    const float delta = sums[0] * inverse_width;
    mean_g = sums[1] * inverse_width;
    mean_gx = rstd * (sums[2] * inverse_width - delta * mean_g);
    shift = -delta * rstd;
  }
  KITTENS_DEVICE row_gradient(const float (&sums)[1], float rstd, float inverse_width)
      : rstd(rstd), mean_gx(rstd * (sums[0] * inverse_width)) {}

  // ŝ.
  KITTENS_DEVICE float normal(float d) const {
    if constexpr (Kind::centred) {
      return fmaf(d, rstd, shift);
    } else {
      return d * rstd;
    }
  }
  // A product rounded before dsum is added, so that all kernels give the same bits.
  KITTENS_DEVICE float operator()(float dy, float weight, float normal) const {
    const float g = Kind::centred ? fmaf(dy, weight, -mean_g) : dy * weight;
    return arch::mul_rounded(rstd, fmaf(normal, -mean_gx, g));
  }
};

// d becomes ŝ.
template <class V, class Kind>
KITTENS_DEVICE void normalise(V& d, const row_gradient<Kind>& gradient) {
  map([=](float d) { return gradient.normal(d); }, d, d);
}

// A thread's running sums of its columns' dweight and dbias.
template <class Config>
struct weight_gradients {
  typename Config::vector dweight, dbias;

  KITTENS_DEVICE weight_gradients() {
    zero(dweight);
    zero(dbias);
  }
  KITTENS_DEVICE void add_row(const typename Config::loaded_dy& dy,
                              const typename Config::vector& normal) {
    fma(dweight, dy, normal, dweight);
    if constexpr (Config::kind::centred) add(dbias, dbias, dy);
  }
};

// Writes dresidual and dx, as far as they are wanted.
template <class Config>
KITTENS_DEVICE void store_gradients(const norm_backward_params& p, const dropout_mask& mask,
                                    typename Config::vector& ds, int64_t r, int64_t slice) {
  using V = typename Config::vector;
  if constexpr (Config::kind::adds) {
    if (p.dresidual != nullptr) {
      store_slice<typename Config::residual_type>(p.dresidual, p.residual_type, p, ds, r, slice);
    }
    if (p.dx != nullptr && mask.drops) {
      const int64_t first = r * p.width + slice * V::length;
#pragma unroll
      for (int c = 0; c < V::chunks; ++c) {
        float values[V::run_length], factor[V::run_length];
        ds.data[c].get(values);
        const int64_t number = first + V::first(c, arch::lane_id());
        if constexpr (is_any<typename Config::type>) {
          mask.factors_anywhere(factor, number);
        } else {
          mask.factors(factor, number);
        }
#pragma unroll
        for (int i = 0; i < V::run_length; ++i) values[i] *= factor[i];
        ds.data[c].set(values);
      }
    }
  }
  if (p.dx != nullptr) store_slice<typename Config::type>(p.dx, p.type, p, ds, r, slice);
}

// What a block's groups leave in shared memory for its first group to add up, when there are
// several. In runs of four floats, the lanes of an access meet no bank twice; all warps store and
// load the same permutation of their columns.
template <class Config>
struct group_sums {
  using exchanged =
      rv<float, Config::length, ducks::rv_layout::runs<std::min(4, Config::layout::run)>>;
  sv<float, Config::length> dweight, dbias;  // of one warp

  KITTENS_DEVICE static void leave(sv<float, Config::length>& place,
                                   const typename Config::vector& v) {
    exchanged e;
    std::memcpy(static_cast<void*>(&e), &v, sizeof(v));
    store(place, e);
  }
  KITTENS_DEVICE static void read(typename Config::vector& v,
                                  const sv<float, Config::length>& place) {
    exchanged e;
    load(e, place);
    std::memcpy(static_cast<void*>(&v), &e, sizeof(v));
  }
  KITTENS_DEVICE static void take(typename Config::vector& total,
                                  const sv<float, Config::length>& place) {
    typename Config::vector v;
    read(v, place);
    add(total, total, v);
  }
};

// Adds the groups' sums in order: the first group has them all. Every thread of the block takes
// part.
template <class Config>
KITTENS_DEVICE void add_groups(weight_gradients<Config>& total, group_sums<Config>* shared,
                               int groups, int warps) {
  using sums = group_sums<Config>;
  const int group = arch::warp_id() / warps, warp = arch::warp_id() % warps;
  if (group > 0) {
    sums::leave(shared[arch::warp_id()].dweight, total.dweight);
    if constexpr (Config::kind::centred) sums::leave(shared[arch::warp_id()].dbias, total.dbias);
  }
  if (groups > 1) arch::sync_block();
  if (group > 0) return;
  for (int other = 1; other < groups; ++other) {
    const sums& from = shared[other * warps + warp];
    sums::take(total.dweight, from.dweight);
    if constexpr (Config::kind::centred) sums::take(total.dbias, from.dbias);
  }
}

// Writes a slice of row `r` of `partial`.
template <class Config>
KITTENS_DEVICE void store_partial(const norm_backward_params& p,
                                  const weight_gradients<Config>& total, int64_t r, int64_t slice) {
  if constexpr (is_any<typename Config::type>) {
    const int64_t first = slice * Config::length;
    const auto store_sums = [&](const typename Config::vector& sums, int64_t r) {
      store_packed(p.partial, dtype::float32, r * p.width + first, int(p.width - first), sums);
    };
    store_sums(total.dweight, r);
    if (has_mean<Config>(p)) store_sums(total.dbias, p.partial_rows + r);
  } else {
    const auto partial = matrix<float>(p.partial, 2 * p.partial_rows, p.width, p.width);
    store(partial, total.dweight, {.r = r, .c = slice});
    if constexpr (Config::kind::centred) {
      store(partial, total.dbias, {.r = p.partial_rows + r, .c = slice});
    }
  }
}

// Grid: partial_rows blocks, whether or not a weight gradient is wanted.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads)
    norm_backward(const __grid_constant__ norm_backward_params p, row_layout layout) {
  using vector = typename Config::vector;
  const int warps = layout.warps, groups = arch::block_threads() / (warps * kWarp);
  const int group = arch::warp_id() / warps, warp = arch::warp_id() % warps;
  const int columns = int(p.width) - warp * vector::length;  // from this warp's first on
  const int64_t stride = int64_t(arch::grid_x()) * groups;

  using sum_shared = typename group_sum<Config::sums>::shared;
  auto* shared = reinterpret_cast<sum_shared*>(arch::dynamic_shared());
  auto* slots = reinterpret_cast<uint8_t*>(shared + groups);
  auto* exchanged = slots + groups * warps * Config::stream_bytes;
  group_sum<Config::sums> add{shared[group], warp, warps, 1 + group};

  // The weights stay in L1, not in registers: those hold the next row instead.
  const auto load_weights = [&](vector& weight) { load_weight_slice<Config>(weight, p, warp); };
  const dropout_mask mask(p.dropout);
  weight_gradients<Config> total;

  int64_t r = int64_t(arch::block_x()) * groups + group;
  typename Config::stream dsums(matrix<const typename Config::stream::type>(
                                    p.dsum, p.dsum == nullptr ? 0 : p.rows, p.width, p.dsum_stride),
                                slots + arch::warp_id() * Config::stream_bytes, r, stride, warp);
  if constexpr (Config::streams) dsums.start();
  loaded_row<Config> row, next;
  if (Config::loads_ahead && r < p.rows) next.load_from(p, r, warp);
  for (; r < p.rows; r += stride) {
    if constexpr (Config::loads_ahead) {
      row = next;
    } else {
      row.load_from(p, r, warp);
      row.unpack(p);
    }
    if (Config::prefetch && r + stride < p.rows) next.load_from(p, r + stride, warp);

    vector weight, d;
    load_weights(weight);
    row.centre(d, columns);
    float sums[Config::sums];
    row_sums<Config>(sums, d, row.dy, weight, has_mean<Config>(p));
    add(sums);

    const row_gradient<typename Config::kind> gradient(sums, row.rstd, layout.inverse_width);
    normalise(d, gradient);
    total.add_row(row.dy, d);
    load_weights(weight);
    vector& ds = d;
    map(gradient, ds, row.dy, weight, d);
    if (Config::kind::adds && p.dsum != nullptr) {
      vector dsum;
      if constexpr (Config::streams) {
        dsums.read(dsum);
        dsums.advance();
      } else {
        load_slice<typename Config::residual_type>(dsum, p.dsum, p.residual_type, p, p.dsum_stride,
                                                   r, warp);
        unpack_slice<typename Config::residual_type>(dsum, p.residual_type);
      }
      kittens::add(ds, ds, dsum);
    }
    store_gradients<Config>(p, mask, ds, r, warp);
    if (Config::loads_ahead && !Config::prefetch && r + stride < p.rows) {
      next.load_from(p, r + stride, warp);
    }
  }
  if (p.partial == nullptr) return;
  add_groups<Config>(total, reinterpret_cast<group_sums<Config>*>(exchanged), groups, warps);
  if (group == 0) store_partial<Config>(p, total, arch::block_x(), warp);
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
