// A small call of attention, and its check against the formula in double.
#pragma once

#include <kittens.cuh>

#include "attention.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

namespace {

constexpr int64_t kAll = 1 << 20;  // keys to a side

struct problem {
  int64_t batch, rows, keys, heads, key_heads;
  int64_t left = kAll, right = kAll;
  bool lse = true, dynamic = false, sinks = false;
  int64_t value_dim = 64, head_dim = 64;
  float softcap = 0;
  // From row 5 on, every `aimed` rows one is aimed at a key, so that it scores `factor` times
  // as much as others.
  int64_t aimed = 0, aimed_key = 0;
  float factor = 0;
  int64_t hill = 0;      // or at this many keys, all alike, not at one
  int64_t nan_row = -1;  // a query that is NaN
  float loud = 0;        // all of the first column of v, of key head 1 the last, where it is not 0
  // What aimed rows are instead, where it is not 0: they score so much at the aimed key, every
  // other one of them so much less than nothing, and a part of it at others. Or all rise from it,
  // by 16 from one block of 128 keys to the one in front of it.
  float far = 0;
  bool rises = false;
  // Of each batch: seqused_k, leftpad_k. The keys that do not exist are NaN.
  std::vector<int> used = {}, padding = {};

  // The first key of a batch, and behind the last one.
  std::pair<int64_t, int64_t> keys_of(int64_t b) const {
    const int64_t end = used.empty() ? keys : std::clamp<int64_t>(used[b], 0, keys);
    return {padding.empty() ? 0 : std::clamp<int64_t>(padding[b], 0, end), end};
  }
};

struct outputs {
  std::vector<double> o, lse;
};

float scale_of(const problem& is) {
  // Twice what is usual: a few keys decide, so that none may be missing.
  return 2 / std::sqrt(float(is.head_dim));
}

// Which rows are aimed: all that are to be, or every other one of them.
enum class aims { all, even, odd };

bool is_aimed(const problem& is, int64_t row, aims which) {
  if (is.aimed == 0 || row < 5 || (row - 5) % is.aimed != 0) return false;
  return which == aims::all || (row - 5) / is.aimed % 2 == (which == aims::odd ? 1 : 0);
}

// The first two elements of key j for rows that are far: products with them are exact in float.
float far_key(const problem& is, int64_t j, int64_t column) {
  if (is.rises) return column == 0 ? 1 : 16 * float((is.keys - 1 - j) / 128);
  if (column == 1) return 0;
  if (j == is.aimed_key) return 127 / 128.0f;
  return (j == (is.aimed_key + 70) % is.keys ? 1 : float(8 + j % 100)) / 128;
}

// Row i of one head: its outputs, and the logarithm of its sum.
void attend(const problem& is, int64_t b, int64_t i, int64_t h, const std::vector<double>& q,
            const std::vector<double>& k, const std::vector<double>& v,
            const std::vector<float>& sinks, outputs& to) {
  const auto [first_key, end_key] = is.keys_of(b);
  const int64_t diagonal = i + end_key - is.rows;
  const int64_t first = std::max(first_key, diagonal - is.left);
  const int64_t end = std::min(end_key, diagonal + is.right + 1);
  const int64_t key_head = h / (is.heads / is.key_heads);
  const auto key = [&](int64_t j) { return ((b * is.keys + j) * is.key_heads + key_head); };
  const double* query = &q[((b * is.rows + i) * is.heads + h) * is.head_dim];
  double* o = &to.o[((b * is.rows + i) * is.heads + h) * is.value_dim];
  const double scale = scale_of(is);
  std::vector<double> scores;
  double top = is.sinks ? sinks[h] : -INFINITY;
  for (int64_t j = first; j < end; ++j) {
    double score = 0;
    for (int d = 0; d < is.head_dim; ++d) score += query[d] * k[key(j) * is.head_dim + d];
    score *= scale;
    if (is.softcap > 0) score = is.softcap * std::tanh(score / is.softcap);
    top = std::max(top, score);
    scores.push_back(score);
  }
  double sum = is.sinks ? std::exp(sinks[h] - top) : 0;
  for (int64_t j = first; j < end; ++j) {
    const double p = std::exp(scores[j - first] - top);
    sum += p;
    for (int d = 0; d < is.value_dim; ++d) o[d] += p * v[key(j) * is.value_dim + d];
  }
  const bool sees_none = sum == 0;  // of a query that is NaN, the sum is too
  for (int d = 0; d < is.value_dim; ++d) o[d] = sees_none ? 0 : o[d] / sum;
  to.lse[(b * is.heads + h) * is.rows + i] = sees_none ? -INFINITY : top + std::log(sum);
}

// Where packed sequences start, and the last one ends.
struct ends {
  std::vector<int> rows;
  std::vector<int64_t> keys;
};

template <class T>
struct results {
  std::vector<T> o;
  std::vector<float> lse;
};

template <class T>
results<T> run(const problem& is, const std::vector<T>& qs, const std::vector<T>& ks,
               const std::vector<T>& vs, const std::vector<float>& sinks, const ends& packed = {}) {
  const int64_t row = is.heads * is.head_dim, key_row = is.key_heads * is.head_dim;
  const int64_t value_row = is.key_heads * is.value_dim;
  const buffer<T> q(qs), k(ks), v(vs), o(is.batch * is.rows * is.heads * is.value_dim);
  const buffer<float> lse(is.batch * is.heads * is.rows), sink(sinks);
  const buffer<int> counter(std::vector<int>{0}), row_ends(packed.rows);
  const buffer<int64_t> key_ends(packed.keys);
  const buffer<int64_t> padding(std::vector<int64_t>(is.padding.begin(), is.padding.end()));
  const buffer<int> used(is.used);
  const bool is_packed = !packed.rows.empty();
  run_attention({.q = q.data(),
                 .k = k.data(),
                 .v = v.data(),
                 .o = o.data(),
                 .lse = is.lse ? lse.data() : nullptr,
                 .sinks = is.sinks ? sink.data() : nullptr,
                 .tile_counter = is.dynamic ? counter.data() : nullptr,
                 .cu_seqlens_q = is_packed ? row_ends.data() : nullptr,
                 .cu_seqlens_k = is_packed ? key_ends.data() : nullptr,
                 .int64_seqlens_q = false,
                 .int64_seqlens_k = true,
                 .sequences = static_cast<int64_t>(packed.rows.size()) - 1,
                 .seqused_k = is.used.empty() ? nullptr : used.data(),
                 .leftpad_k = is.padding.empty() ? nullptr : padding.data(),
                 .int64_seqused_k = false,
                 .int64_leftpad_k = true,
                 .batch = is.batch,
                 .rows = is.rows,
                 .keys = is.keys,
                 .heads = is.heads,
                 .key_heads = is.key_heads,
                 .head_dim = is.head_dim,
                 .value_dim = is.value_dim,
                 .q_strides = {is.rows * row, row, is.head_dim},
                 .k_strides = {is.keys * key_row, key_row, is.head_dim},
                 .v_strides = {is.keys * value_row, value_row, is.value_dim},
                 .scale = scale_of(is),
                 .softcap = is.softcap,
                 .left = is.left,
                 .right = is.right,
                 .type = std::is_same_v<T, bf16> ? dtype::bfloat16 : dtype::float16});
  CHECK_EQUAL(counter.get()[0], 0);
  return {o.get(), lse.get()};
}

// The queries of `is`, of which some rows are aimed, in part of all rows and keys: from q0, k0 on.
template <class T>
void aim(const problem& is, std::vector<T>& qs, const std::vector<T>& ks, aims which,
         int64_t q0 = 0, int64_t k0 = 0) {
  for (int64_t i = 0; i < is.batch * is.rows * is.heads * is.head_dim; ++i) {
    const int64_t h = i / is.head_dim % is.heads, key_head = h / (is.heads / is.key_heads);
    const int64_t at = i / is.head_dim / is.heads % is.rows;
    const int64_t b = i / is.head_dim / is.heads / is.rows;
    T& q = qs[q0 * is.heads * is.head_dim + i];
    if (at == is.nan_row) q = kittens::convert<T>(NAN);
    if (!is_aimed(is, at, which) || is.aimed_key >= is.keys) continue;
    if (is.far != 0) {
      const float sign = !is.rises && (at - 5) / is.aimed % 2 == 1 ? -1 : 1;
      const int64_t column = i % is.head_dim;
      q = kittens::convert<T>(column == 0 ? sign * is.far : column == 1 && is.rises ? 1 : 0);
      continue;
    }
    if (is.hill > 0) {
      q = kittens::convert<T>(kittens::convert<float>(q) + is.factor);
      continue;
    }
    const int64_t key = (b * is.keys + k0 + is.aimed_key) * is.key_heads + key_head;
    q = kittens::convert<T>(is.factor *
                            kittens::convert<float>(ks[key * is.head_dim + i % is.head_dim]));
  }
}

// Rows that are aimed in both, or in neither, have the same bits.
template <class T>
void check_neighbours(const problem& is, const results<T>& all, const results<T>& some,
                      aims which) {
  int changed = 0;
  const auto compare = [&](int64_t row, float x, float y) {
    if (is_aimed(is, row, aims::all) != is_aimed(is, row, which)) return;
    changed += x != y && !(std::isnan(x) && std::isnan(y));
  };
  for (int64_t i = 0; i < static_cast<int64_t>(all.o.size()); ++i) {
    compare(i / (is.heads * is.value_dim) % is.rows, kittens::convert<float>(all.o[i]),
            kittens::convert<float>(some.o[i]));
  }
  for (int64_t i = 0; is.lse && i < static_cast<int64_t>(all.lse.size()); ++i) {
    compare(i % is.rows, all.lse[i], some.lse[i]);
  }
  CHECK_EQUAL(changed, 0);
}

template <class T>
void check(const problem& is) {
  const int64_t row = is.heads * is.head_dim;
  const auto tame = normal_values<T>(is.batch * is.rows * row, 1);
  auto ks = normal_values<T>(is.batch * is.keys * is.key_heads * is.head_dim, 2);
  for (int64_t i = 0; i < static_cast<int64_t>(ks.size()); ++i) {
    if (i / is.head_dim / is.key_heads % is.keys >= is.hill) continue;
    ks[i] = kittens::convert<T>(kittens::convert<float>(ks[i]) + 1);
  }
  for (int64_t i = 0; is.far != 0 && i < static_cast<int64_t>(ks.size()); ++i) {
    const int64_t column = i % is.head_dim, j = i / is.head_dim / is.key_heads % is.keys;
    if (column < 2) ks[i] = kittens::convert<T>(far_key(is, j, column));
  }
  auto vs = normal_values<T>(is.batch * is.keys * is.key_heads * is.value_dim, 3);
  for (int64_t i = 0; is.loud != 0 && i < static_cast<int64_t>(vs.size()); ++i) {
    const int64_t key_head = i / is.value_dim % is.key_heads;
    if (i % is.value_dim == (key_head == 1 ? is.value_dim - 1 : 0)) {
      vs[i] = kittens::convert<T>(is.loud);
    }
  }
  for (int64_t key = 0; key < is.batch * is.keys; ++key) {
    const auto [first, end] = is.keys_of(key / is.keys);
    if (key % is.keys >= first && key % is.keys < end) continue;
    const auto spoil = [&](std::vector<T>& values, int64_t row) {
      std::fill_n(values.begin() + key * row, row, kittens::convert<T>(NAN));
    };
    spoil(ks, is.key_heads * is.head_dim);
    spoil(vs, is.key_heads * is.value_dim);
  }
  const auto sinks = normal_values<float>(is.heads, 4, 6, 2);  // as much as a few keys
  auto qs = tame;
  aim(is, qs, ks, aims::all);
  const results<T> got = run(is, qs, ks, vs, sinks);
  outputs want{std::vector<double>(got.o.size()), std::vector<double>(got.lse.size())};
  const auto qd = doubles(qs), kd = doubles(ks), vd = doubles(vs);
  for (int64_t b = 0; b < is.batch; ++b) {
    for (int64_t h = 0; h < is.heads; ++h) {
      for (int64_t i = 0; i < is.rows; ++i) attend(is, b, i, h, qd, kd, vd, sinks, want);
    }
  }
  // The weights round, each by a unit of itself, and so do their sums with v, below 4.
  check_all("o", got.o, want.o, unit<T>(), 4 * unit<T>() / 2);
  // Most scores reach 16 in float; their errors come in as they are.
  if (is.lse) check_all("lse", got.lse, want.lse, 8 * unit<float>(), 16 * 8 * unit<float>());
  if (is.aimed == 0) return;
  for (const aims which : {aims::even, aims::odd}) {
    qs = tame;
    aim(is, qs, ks, which);
    check_neighbours(is, got, run(is, qs, ks, vs, sinks), which);
  }
}

#if CONFIGS == 0
// Sequences among all the rows and keys of `is`; each by itself is what it would be alone. The
// kernel is `told` where they start and end, which is what it should take for `packed`.
void check_packed(const problem& is, const ends& packed, const ends& told) {
  const int64_t q_row = is.heads * is.head_dim, k_row = is.key_heads * is.head_dim;
  const int64_t v_row = is.key_heads * is.value_dim, o_row = is.heads * is.value_dim;
  auto qs = normal_values<bf16>(is.rows * q_row, 1);
  const auto ks = normal_values<bf16>(is.keys * k_row, 2);
  const auto vs = normal_values<bf16>(is.keys * v_row, 3);
  std::vector<problem> alone(packed.rows.size() - 1, is);
  for (size_t n = 0; n < alone.size(); ++n) {
    alone[n].rows = packed.rows[n + 1] - packed.rows[n];
    alone[n].keys = packed.keys[n + 1] - packed.keys[n];
    aim(alone[n], qs, ks, aims::all, packed.rows[n], packed.keys[n]);
  }
  const results<bf16> got = run(is, qs, ks, vs, {}, told);
  const auto part = [](const std::vector<bf16>& of, int64_t row, int64_t first, int64_t count) {
    return doubles(std::vector<bf16>(of.begin() + first * row, of.begin() + (first + count) * row));
  };
  std::vector<double> o(got.o.size()), lse(got.lse.size(), -INFINITY);
  for (size_t n = 0; n < alone.size(); ++n) {
    const problem& one = alone[n];
    const int64_t q0 = packed.rows[n], k0 = packed.keys[n];
    outputs want{std::vector<double>(one.rows * o_row), std::vector<double>(one.rows * is.heads)};
    const auto q = part(qs, q_row, q0, one.rows), k = part(ks, k_row, k0, one.keys),
               v = part(vs, v_row, k0, one.keys);
    for (int64_t h = 0; h < is.heads; ++h) {
      for (int64_t i = 0; i < one.rows; ++i) {
        attend(one, 0, i, h, q, k, v, {}, want);
        lse[h * is.rows + q0 + i] = want.lse[h * one.rows + i];
      }
    }
    std::copy(want.o.begin(), want.o.end(), o.begin() + q0 * o_row);
  }
  check_all("o", got.o, o, unit<bf16>(), 4 * unit<bf16>() / 2);
  check_all("lse", got.lse, lse, 8 * unit<float>(), 16 * 8 * unit<float>());
}
void check_packed(const problem& is, const ends& packed) { check_packed(is, packed, packed); }
#endif

}  // namespace
