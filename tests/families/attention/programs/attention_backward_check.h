// A small call of attention's backward, and its check against the formula in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <kittens.cuh>
#include <vector>

#include "attention_backward.h"
#include "attention_backward_fused.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

namespace {

constexpr int64_t kAll = 1 << 20;                       // keys to a side
constexpr int64_t kTileKeys = CONFIGS == 2 ? 32 : 128;  // of the kernel with the smallest tiles

struct problem {
  int64_t batch, rows, keys, heads, key_heads;
  int64_t left = kAll, right = kAll;
  bool dynamic = false, dlse = false, sinks = false, dq = true;
  bool no_sink = false;  // the first head's is −inf
  int64_t head_dim = 64, value_dim = 64;
  float loud = 1;  // by how much a key's v, and a row's gradient of o, is larger than others
  int64_t loud_key = 1, loud_row = 1;    // which
  int64_t nan_row = -1;                  // whose gradient is NaN
  int64_t nan_key = -1, nan_column = 0;  // whose value is NaN there: so may be all of its tile
  bool nan_in_k = false;                 // not in v
  // This key and the next have the same score, but in a column where all of q are 0 large k of
  // opposite signs, and such values, too: delta is of the other keys, dq there of these.
  int64_t large_key = -1, large_column = 0;
  float v_size = 1, do_size = 1;  // what v and the gradient of o are multiplied by
  float softcap = 0;
  std::vector<int> q_ends, k_ends;  // cu_seqlens of packed sequences
  std::vector<int> used, padding;   // of each batch: seqused_k, leftpad_k
  bool fused = false;               // dq, dk and dv are parts of one row, of as many rows as keys

  bool packed() const { return !q_ends.empty(); }
  bool bounded() const { return !used.empty() || !padding.empty(); }
  // The first key of a batch, and behind the last one.
  std::pair<int64_t, int64_t> keys_of(int64_t b) const {
    const int64_t end = used.empty() ? keys : std::clamp<int64_t>(used[b], 0, keys);
    return {padding.empty() ? 0 : std::clamp<int64_t>(padding[b], 0, end), end};
  }
};

// The rows and keys that belong together with row i; where it is in no sequence, no keys.
struct sequence {
  int64_t row, rows, key, keys;

  static sequence of(const problem& is, int64_t b, int64_t i) {
    if (!is.packed()) {
      const auto [first, end] = is.keys_of(b);
      return {0, is.rows, first, end - first};
    }
    for (size_t s = 0; s + 1 < is.q_ends.size(); ++s) {
      if (is.q_ends[s] > i || i >= is.q_ends[s + 1]) continue;
      return {is.q_ends[s], is.q_ends[s + 1] - is.q_ends[s], is.k_ends[s],
              is.k_ends[s + 1] - is.k_ends[s]};
    }
    return {i, 1, 0, 0};
  }
};

// A gradient, and how far the kernel's may be from it: sums over rounded terms are off as a random
// walk (tests/fuzz/arithmetic.py).
struct sums {
  std::vector<double> want, squares, sizes, room;
  explicit sums(int64_t n) : want(n), squares(n), sizes(n), room(n) {}
  // `size` is what the term is a difference of.
  void add(int64_t at, double term, double size) {
    want[at] += term;
    squares[at] += term * term;
    sizes[at] += std::fabs(size);
  }
};

template <class T>
void check_sums(const char* what, const std::vector<T>& got, const sums& of, double size,
                size_t may_be_nan = SIZE_MAX) {
  for (size_t i = 0; i < of.want.size(); ++i) {
    const double g = kittens::convert<float>(got[i]), w = of.want[i];
    const double room = 3.2 * unit<T>() * std::sqrt(of.squares[i]) + 4e-6 * of.sizes[i] +
                        unit<T>() * std::fabs(w) + of.room[i] + 1e-7 * size;
    if ((std::isnan(g) && (i >= may_be_nan || std::isnan(w))) || std::fabs(g - w) <= room) continue;
    fail(what, static_cast<int>(i), "is " + to_text(g) + ", not " + to_text(w));
    return;
  }
}

template <class T>
struct inputs {
  std::vector<T> q, k, v, o, d_o;
  std::vector<float> lse, dlse, sinks;
};

// The inputs once more.
struct exact {
  std::vector<double> q, k, v, d_o;
};

// The largest norm of a head's v, and the largest element of its k, of the keys that exist.
struct largest {
  double v = 0, k = 0;
};

struct expected {
  sums dq, dk, dv;
  std::vector<double> dsinks, dsinks_size;
};

float scale_of(const problem& is) {
  // Twice what is usual: a few keys decide, so that none may be missing.
  return 2 / std::sqrt(float(is.head_dim));
}

// What a row's norm is known by: if its square may overflow or vanish in float, by the largest of
// its numbers.
class norm_bound {
 public:
  void add(double x) {
    square_ += x * x;
    most_ = std::max(most_, std::fabs(x));
    ++count_;
  }
  double get() const {
    const bool is_usual = square_ > 1e-30 && square_ < 1e30;
    return is_usual ? std::sqrt(square_) : most_ * std::sqrt(count_);
  }

 private:
  double square_ = 0, most_ = 0;
  int count_ = 0;
};

largest largest_of(const problem& is, int64_t b, int64_t key_head, const exact& x) {
  largest found;
  const auto [first, end] = is.keys_of(b);
  for (int64_t j = first; j < end; ++j) {
    const int64_t key = (b * is.keys + j) * is.key_heads + key_head;
    norm_bound norm;
    for (int64_t d = 0; d < is.value_dim; ++d) norm.add(x.v[key * is.value_dim + d]);
    found.v = std::max(found.v, norm.get());
    for (int64_t d = 0; d < is.head_dim; ++d) {
      found.k = std::max(found.k, std::fabs(x.k[key * is.head_dim + d]));
    }
  }
  return found;
}

// Row i of one head: its o and lse, if it is not there yet, and what it adds to the gradients.
template <class T>
void differentiate(const problem& is, int64_t b, int64_t i, int64_t h, const exact& x,
                   const largest& bound, inputs<T>& in, expected& to) {
  const int64_t D = is.head_dim, Dv = is.value_dim, key_head = h / (is.heads / is.key_heads);
  const sequence of = sequence::of(is, b, i);
  const int64_t diagonal = i - of.row + of.keys - of.rows + of.key;
  const int64_t first = std::max(of.key, diagonal - is.left);
  const int64_t end = std::min(of.key + of.keys, diagonal + is.right + 1);
  const int64_t row = (b * is.rows + i) * is.heads + h, at = (b * is.heads + h) * is.rows + i;
  const auto key = [&](int64_t j) { return (b * is.keys + j) * is.key_heads + key_head; };
  const double scale = scale_of(is);
  std::vector<double> p, dp, sizes, slopes;
  double top = is.sinks ? in.sinks[h] : -INFINITY;
  for (int64_t j = first; j < end; ++j) {
    double score = 0, product = 0, size = 0;
    for (int64_t d = 0; d < D; ++d) score += x.q[row * D + d] * x.k[key(j) * D + d];
    for (int64_t d = 0; d < Dv; ++d) {
      const double term = x.d_o[row * Dv + d] * x.v[key(j) * Dv + d];
      product += term;
      size += std::fabs(term);
    }
    const double bent = is.softcap > 0 ? std::tanh(score * scale / is.softcap) : 0;
    p.push_back(is.softcap > 0 ? bent * is.softcap : score * scale);
    slopes.push_back(1 - bent * bent);
    dp.push_back(product);
    sizes.push_back(size);
    top = std::max(top, p.back());
  }
  double total = is.sinks && top > -INFINITY ? std::exp(in.sinks[h] - top) : 0;
  for (double& weight : p) total += weight = std::exp(weight - top);
  const bool sees_none = total == 0;
  in.lse[at] = sees_none ? -INFINITY : static_cast<float>(top + std::log(total));
  double delta = 0;
  norm_bound norm;
  for (int64_t d = 0; d < Dv; ++d) {
    double o = 0;
    for (int64_t j = first; j < end; ++j) o += p[j - first] / total * x.v[key(j) * Dv + d];
    in.o[row * Dv + d] = kittens::convert<T>(sees_none ? 0 : static_cast<float>(o));
    const double gradient = x.d_o[row * Dv + d];
    delta += kittens::convert<float>(in.o[row * Dv + d]) * gradient;
    norm.add(gradient);
  }
  if (is.dlse) delta -= in.dlse[at];
  if (is.sinks) {
    const double share = sees_none ? 0 : std::exp(in.sinks[h] - in.lse[at]);
    to.dsinks[h] -= share * delta;
    to.dsinks_size[h] += std::fabs(share * delta);
  }
  // dq's integers, where it is added up: half a unit for each tile, of which 2^-126 is the
  // smallest.
  const double most = (norm.get() * bound.v + std::fabs(delta)) * bound.k;
  const double step = kAddsDq ? scale * std::max(0x1p-29 * most, 0x1p-126) : 0;
  for (int64_t d = 0; d < D; ++d) {
    to.dq.room[row * D + d] = step * static_cast<double>(of.keys / kTileKeys + 1) / 2;
  }
  for (int64_t j = first; j < end; ++j) {
    const double weight = p[j - first] / total, slope = slopes[j - first];
    const double ds = weight * slope * (dp[j - first] - delta) * scale;
    const double size = weight * (sizes[j - first] + std::fabs(delta)) * scale;
    for (int64_t d = 0; d < D; ++d) {
      const double of_k = x.k[key(j) * D + d], of_q = x.q[row * D + d];
      to.dq.add(row * D + d, ds * of_k, size * of_k);
      to.dk.add(key(j) * D + d, ds * of_q, size * of_q);
    }
    for (int64_t d = 0; d < Dv; ++d) {
      const double term = weight * x.d_o[row * Dv + d];
      to.dv.add(key(j) * Dv + d, term, term);
    }
  }
}

// Calls f of each key that does not exist.
void each_stray_key(const problem& is, const auto& f) {
  for (int64_t key = 0; key < is.batch * is.keys; ++key) {
    const auto [first, end] = is.keys_of(key / is.keys);
    if (key % is.keys < first || key % is.keys >= end) f(key);
  }
}

template <class T>
gradients<T> run(const problem& is, const inputs<T>& in) {
  const int64_t D = is.head_dim, Dv = is.value_dim;
  const int64_t q_row = is.heads * D, k_row = is.key_heads * D, v_row = is.key_heads * Dv,
                o_row = is.heads * Dv;
  const buffer<T> q(in.q), k(in.k), v(in.v), o(in.o), d_o(in.d_o);
  const buffer<float> lse(in.lse), dlse(in.dlse), sinks(in.sinks);
  const T nan = kittens::convert<T>(NAN);
  std::vector<T> of_k(in.k.size(), nan), of_v(in.v.size(), nan);
  each_stray_key(is, [&](int64_t key) {
    std::fill_n(of_k.begin() + key * k_row, k_row, kittens::convert<T>(kStray));
    std::fill_n(of_v.begin() + key * v_row, v_row, kittens::convert<T>(kStray));
  });
  const std::vector<T> of_q(in.q.size(), nan);
  const fused_gradients<T> fused(q_row, k_row, v_row);
  const buffer<T> dq(of_q), dk(of_k), dv(of_v);
  const buffer<T> all(is.fused ? fused.join({of_q, of_k, of_v, {}}) : std::vector<T>(1));
  const int64_t step = fused.stride();
  const auto strides = [&](int64_t length, int64_t row, int64_t width) {
    return is.fused ? attention_strides{length * step, step, width}
                    : attention_strides{length * row, row, width};
  };
  const buffer<int64_t> used(std::vector<int64_t>(is.used.begin(), is.used.end()));
  const buffer<int> padding(is.padding);
  const buffer<float> dsinks(std::vector<float>(is.heads, NAN));
  const buffer<int> counter(std::vector<int>{0}), q_ends(is.q_ends);
  const buffer<int64_t> k_ends(std::vector<int64_t>(is.k_ends.begin(), is.k_ends.end()));
  attention_backward_params p{
      .q = q.data(),
      .k = k.data(),
      .v = v.data(),
      .o = o.data(),
      .d_o = d_o.data(),
      .lse = lse.data(),
      .dlse = is.dlse ? dlse.data() : nullptr,
      .sinks = is.sinks ? sinks.data() : nullptr,
      .dq = !is.dq     ? nullptr
            : is.fused ? all.data()
                       : dq.data(),
      .dk = is.fused ? all.data() + q_row : dk.data(),
      .dv = is.fused ? all.data() + q_row + k_row : dv.data(),
      .dsinks = is.sinks ? dsinks.data() : nullptr,
      .workspace = nullptr,
      .packed = is.packed(),
      .cu_seqlens_q = q_ends.data(),
      .cu_seqlens_k = k_ends.data(),
      .int64_seqlens_q = false,
      .int64_seqlens_k = true,
      .sequences = is.packed() ? int64_t(is.q_ends.size()) - 1 : 0,
      .seqused_k = is.used.empty() ? nullptr : used.data(),
      .leftpad_k = is.padding.empty() ? nullptr : padding.data(),
      .int64_seqused_k = true,
      .int64_leftpad_k = false,
      .tile_counter = is.dynamic ? counter.data() : nullptr,
      .batch = is.batch,
      .rows = is.rows,
      .keys = is.keys,
      .heads = is.heads,
      .key_heads = is.key_heads,
      .head_dim = D,
      .value_dim = Dv,
      .q_strides = {is.rows * q_row, q_row, D},
      .k_strides = {is.keys * k_row, k_row, D},
      .v_strides = {is.keys * v_row, v_row, Dv},
      .o_strides = {is.rows * o_row, o_row, Dv},
      .do_strides = {is.rows * o_row, o_row, Dv},
      .dq_strides = strides(is.rows, q_row, D),
      .dk_strides = strides(is.keys, k_row, D),
      .dv_strides = strides(is.keys, v_row, Dv),
      .scale = scale_of(is),
      .softcap = is.softcap,
      .left = std::min(is.left, is.keys),
      .right = std::min(is.right, is.rows),
      .type = std::is_same_v<T, bf16> ? dtype::bfloat16 : dtype::float16,
  };
  const attention_backward_layout layout(p, kAddsDq);
  const buffer<int> workspace(std::vector<int>(layout.bytes / 4, -1));
  p.workspace = reinterpret_cast<std::byte*>(workspace.data());
  run_attention_backward(p);
  CHECK_EQUAL(counter.get()[0], 0);
  if (!is.fused) return {dq.get(), dk.get(), dv.get(), dsinks.get()};
  gradients<T> parts = fused.part(all.get());
  parts.dsinks = dsinks.get();
  return parts;
}

template <class T>
void check(const problem& is) {
  const int64_t rows = is.batch * is.rows * is.heads, keys = is.batch * is.keys * is.key_heads;
  const auto times = [](T& x, float factor) {
    x = kittens::convert<T>(kittens::convert<float>(x) * factor);
  };
  inputs<T> in{normal_values<T>(rows * is.head_dim, 1), normal_values<T>(keys * is.head_dim, 2),
               normal_values<T>(keys * is.value_dim, 3), std::vector<T>(rows * is.value_dim),
               normal_values<T>(rows * is.value_dim, 4)};
  in.lse.resize(rows);
  in.dlse = normal_values<float>(rows, 5, 0, 3);
  in.sinks = normal_values<float>(is.heads, 6, 6, 2);  // as much as a few keys
  if (is.no_sink) in.sinks[0] = -INFINITY;
  for (int64_t h = 0; is.large_key >= 0 && h < is.key_heads; ++h) {
    const int64_t D = is.head_dim, Dv = is.value_dim, key = is.large_key * is.key_heads + h;
    const auto k = in.k.begin() + key * D, v = in.v.begin() + key * Dv;
    std::copy_n(k, D, k + is.key_heads * D);
    for (int64_t i = is.large_column; i < rows * D; i += D) in.q[i] = kittens::convert<T>(0.0f);
    for (const int64_t next : {0, 1}) {
      const float sign = next == 0 ? 1 : -1;
      k[next * is.key_heads * D + is.large_column] = kittens::convert<T>(sign * 0x1p14f);
      std::fill_n(v + next * is.key_heads * Dv, Dv, kittens::convert<T>(sign * 0x1p10f));
    }
  }
  for (int64_t i = 0; i < static_cast<int64_t>(in.v.size()); ++i) {
    const bool loud = i / is.value_dim / is.key_heads % is.keys == is.loud_key;
    times(in.v[i], is.v_size * (loud ? is.loud : 1));
  }
  for (int64_t i = 0; i < static_cast<int64_t>(in.d_o.size()); ++i) {
    const int64_t row = i / is.value_dim / is.heads % is.rows;
    times(in.d_o[i], is.do_size * (row == is.loud_row ? is.loud : 1));
    if (row == is.nan_row && i % is.value_dim == 3) in.d_o[i] = kittens::convert<T>(NAN);
  }
  for (int64_t h = 0; is.nan_key >= 0 && h < is.key_heads; ++h) {
    const int64_t at = is.nan_key * is.key_heads + h;
    T& x = is.nan_in_k ? in.k[at * is.head_dim + is.nan_column]
                       : in.v[at * is.value_dim + is.nan_column];
    x = kittens::convert<T>(NAN);
  }
  each_stray_key(is, [&](int64_t key) {
    const int64_t D = is.key_heads * is.head_dim, Dv = is.key_heads * is.value_dim;
    std::fill_n(in.k.begin() + key * D, D, kittens::convert<T>(NAN));
    std::fill_n(in.v.begin() + key * Dv, Dv, kittens::convert<T>(NAN));
  });
  expected want{sums(rows * is.head_dim), sums(keys * is.head_dim), sums(keys * is.value_dim),
                std::vector<double>(is.heads), std::vector<double>(is.heads)};
  const exact x{doubles(in.q), doubles(in.k), doubles(in.v), doubles(in.d_o)};
  for (int64_t b = 0; b < is.batch; ++b) {
    for (int64_t h = 0; h < is.heads; ++h) {
      const largest bound = largest_of(is, b, h / (is.heads / is.key_heads), x);
      for (int64_t i = 0; i < is.rows; ++i) differentiate(is, b, i, h, x, bound, in, want);
    }
  }
  const int64_t k_row = is.key_heads * is.head_dim, v_row = is.key_heads * is.value_dim;
  each_stray_key(is, [&](int64_t key) {
    std::fill_n(want.dk.want.begin() + key * k_row, k_row, kStray);
    std::fill_n(want.dv.want.begin() + key * v_row, v_row, kStray);
  });
  const gradients<T> got = run(is, in);
  // Of one batch, causal: rows before the tile of a key that is NaN have numbers.
  const size_t row = is.heads * is.head_dim, tile = is.nan_key / kTileKeys * kTileKeys;
  const size_t behind = is.nan_key < 0 ? SIZE_MAX : tile * row;
  if (is.dq) check_sums("dq", got.dq, want.dq, is.v_size * is.do_size, behind);
  check_sums("dk", got.dk, want.dk, is.v_size * is.do_size);
  check_sums("dv", got.dv, want.dv, is.do_size);
  if (!is.sinks) return;
  for (int64_t h = 0; h < is.heads; ++h) {
    CHECK_CLOSE(got.dsinks[h], want.dsinks[h], 1e-5 * want.dsinks_size[h] + 1e-6);
  }
}

}  // namespace
