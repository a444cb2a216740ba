// attention_decode: what a warp computes of an item.
//
//   s = scale · q kᵀ in powers of two, p = 2^(s − m), m the largest s so far; o += p v, l += p
#pragma once

#include <bit>
#include <concepts>

#include "kernels/attention_decode/attention_decode_configs.cuh"
#include "kernels/attention_decode/attention_decode_work.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

// What has been added up of one row. In shared memory rows lie 8 banks apart.
template <class Config>
struct decode_record {
  float o[Config::columns];  // Σ 2^(s − m) v
  float2 sums;               // m and Σ 2^(s − m)
  float unused[kDecodeRecordFloats - 2];
};

// What one warp has of half the rows of an item.
template <class Config>
struct decode_part {
  decode_record<Config> rows[kRows / 2];
  float4 apart;  // parts lie 4 banks apart: the sums of a row are read at once
};

// What one warp adds to the scores of a tile of keys, which its slice of the columns gives, and to
// those of the tile before, which the other one may still be reading.
struct decode_scores {
  float4 tiles[2][2 * kKeys / kBase][kWarp];
  float4 apart;  // as above
};

// Where a warp leaves what others add to theirs: of slices at each tile, of all of a team at an
// item's end.
template <class Config>
union decode_exchange {
  decode_scores scores;
  decode_part<Config> part;
};

KITTENS_DEVICE float without_infinity(float m) { return m == -INFINITY ? 0.0f : m; }

// The first of this warp's slice of a head.
template <class Config>
KITTENS_DEVICE int first_column() {
  return Config::slices == 1 ? 0 : team_place<Config::warps>::of_turn() * Config::columns;
}
// This warp's key head of an item's.
template <class Config>
KITTENS_DEVICE int key_head_of(int item) {
  return Config::heads == 1 ? item : item * Config::heads + team_place<Config::warps>::of_turn();
}

// A row of the output: token × head of the group, of one key head.
struct output_row {
  KITTENS_DEVICE output_row(const decode_arguments& p, int b, int key_head, int row)
      : p(p), b(b), key_head(key_head) {
    token = p.by_group.of(row);
    head = key_head * p.group + row - token * p.group;
  }

  // What o is multiplied by: a sink has a part of the sum, and no value.
  KITTENS_DEVICE float factor(float m, float l) const {
    float scale = 1;
    if (p.tensors.sinks != nullptr) {
      const float sink = arch::load_global(p.tensors.sinks + head) * kLog2e;
      const float most = without_infinity(fmaxf(m, sink));
      scale = arch::exp2_approx(m - most);
      l = fmaf(l, scale, arch::exp2_approx(sink - most));
    }
    if (p.tensors.v_scale != nullptr) scale *= arch::load_global(p.tensors.v_scale + key_head);
    return l == 0 ? 0.0f : scale / l;  // 0: no key
  }
  template <class T>
  KITTENS_DEVICE T* data() const {
    return static_cast<T*>(p.tensors.o) + b * p.o_strides.batch + token * p.o_strides.token +
           head * p.o_strides.head;
  }

  const decode_arguments& p;
  int b, key_head, token, head;
};

// tanh within 9 · 2⁻²⁴ of itself: by a polynomial where 1 − 2 / (1 + e²ˣ) would cancel.
KITTENS_DEVICE float tanh_of(float x) {
  const float exp_2x = arch::exp2_approx(fabsf(x) * (2 * kLog2e));
  const float large = fmaf(arch::reciprocal_approx(1.0f + exp_2x), -2.0f, 1.0f);
  const float square = x * x;
  float factor = fmaf(square, -0.046321902f, 0.1324665f);
  factor = fmaf(factor, square, -0.33330485f);
  factor = fmaf(factor, square, 1.0f);
  return fabsf(x) < 0.45f ? x * factor : copysignf(large, x);
}

// The products of one warp: an item's queries, and what has been added up of it.
template <class Config>
class decode_item {
  using T = typename Config::type;
  using product = typename Config::product;
  using tile_type = typename Config::tile;
  static constexpr bool kFp8 = Config::is_fp8;
  static constexpr int kColTiles = Config::columns / kBase, kKeyTiles = kKeys / kBase;

 public:
  KITTENS_DEVICE decode_item(const decode_arguments& p, decode_exchange<Config>* exchanges)
      : p(p), exchanges(exchanges) {}

  KITTENS_DEVICE void begin(const tile_cursor& at) {
    const auto* q = static_cast<const T*>(p.tensors.q) + at.b * p.q_strides.batch;
    const int key_head = key_head_of<Config>(at.key_head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(at, half);
      const bool exists = row < p.rows();
      const int token = exists ? p.by_group.of(row) : p.queries - 1;
      const int head = key_head * p.group + (exists ? row - token * p.group : 0);
      last[half] = at.keys.length - p.queries + token;
      first[half] = last[half] - p.left;
      const T* data = q + token * p.q_strides.token + head * p.q_strides.head;
#pragma unroll
      for (int i = 0; i < 2 * kColTiles; ++i) {
        const int column = first_column<Config>() + column_of(i);
        const auto* pair = reinterpret_cast<const uint32_t*>(data + column);
        const bool has = exists && (!Config::is_padded || column < p.head_dim);
        queries[i / 2][i % 2 * 2 + half] = has ? arch::load_global(pair) : 0;
      }
      if constexpr (kFp8) take_as_halves(half, key_head);
      m[half] = -INFINITY;
      l[half] = 0;
    }
    // The keys that all of the tile's queries see: the first row's are the earliest.
    seen_by_all = {arch::shuffle(first[1], kWarp - 1), arch::shuffle(last[0], 0) + 1};
#pragma unroll
    for (int i = 0; i < 2 * kColTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) o[i][j] = 0;
    }
  }

  // The three steps of a tile of keys. s = q kᵀ
  KITTENS_DEVICE void score(const tile_type& k) {
    using rows = rt<product, kBase, kBase>;
#pragma unroll
    for (int n = 0; n < 2 * kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] = 0;
    }
    const int from = detail::matrix_row<rows, tile_type>(arch::lane_id());
#pragma unroll
    for (int c = 0; c < Config::steps; ++c) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
        uint32_t words[4];
        arch::load_matrix<false>(
            words, &k.data[detail::moved_index<tile_type>(from, n * kBase, c * kBase)]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {  // of 8 keys
          const uint32_t left = words[i], right = words[2 + i];
          float (&to)[4] = s[2 * n + i];
          if constexpr (kFp8) {
            multiply(to, queries[2 * c], {halves_of(left), halves_of(left >> 16)});
            multiply(to, queries[2 * c + 1], {halves_of(right), halves_of(right >> 16)});
          } else {
            multiply(to, queries[c], {left, right});
          }
        }
      }
    }
  }

  // p of s, as a product takes it; what has been added up is brought to its m.
  KITTENS_DEVICE void soften(int first_key) {
    scale();
    if constexpr (Config::slices > 1) add_slices();
    if constexpr (Config::heads > 1) team_place<Config::warps>::sync_turn();  // they read together
    if (p.softcap != 0) cap();
    if (first_key < seen_by_all.first || first_key + kKeys > seen_by_all.length) mask(first_key);
    float decay[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = m[half];
#pragma unroll
      for (int n = 0; n < 2 * kKeyTiles; ++n) {
        most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      }
      most = fmaxf(most, arch::shuffle_xor(most, 1));
      most = fmaxf(most, arch::shuffle_xor(most, 2));
      const float base = without_infinity(most);
      decay[half] = arch::exp2_approx(m[half] - base);
      m[half] = most;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < 2 * kKeyTiles; ++n) {
        s[n][2 * half] = arch::exp2_approx(s[n][2 * half] - base);
        s[n][2 * half + 1] = arch::exp2_approx(s[n][2 * half + 1] - base);
        sum += s[n][2 * half] + s[n][2 * half + 1];
        weights[n / 2][n % 2 * 2 + half] = pack<product>(s[n][2 * half], s[n][2 * half + 1]);
      }
      l[half] = fmaf(l[half], decay[half], sum);
    }
    if (!arch::vote_any(decay[0] != 1 || decay[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < 2 * kColTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) o[i][j] *= decay[j / 2];
    }
  }

  // o += p v
  KITTENS_DEVICE void add_values(const tile_type& v) {
    using columns = rt<product, kBase, kBase, ducks::rt_layout::col>;
    const int from = detail::matrix_row<columns, tile_type>(arch::lane_id());
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int c = 0; c < Config::steps; ++c) {
        uint32_t words[4];
        arch::load_matrix<true>(
            words, &v.data[detail::moved_index<tile_type>(from, n * kBase, c * kBase)]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {  // of 16 bytes of a row
          const uint32_t upper = words[i], lower = words[2 + i];
          if constexpr (kFp8) {
            const uint32_t a = by_columns(upper), b = by_columns(lower);
            multiply(o[4 * c + 2 * i], weights[n], {halves_of(a), halves_of(b)});
            multiply(o[4 * c + 2 * i + 1], weights[n], {halves_of(a >> 16), halves_of(b >> 16)});
          } else {
            multiply(o[2 * c + i], weights[n], {upper, lower});
          }
        }
      }
    }
  }

  // Adds up l, of which each lane of a row has what its columns were.
  KITTENS_DEVICE void add_up() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      l[half] += arch::shuffle_xor(l[half], 1);
      l[half] += arch::shuffle_xor(l[half], 2);
    }
  }

  // Writes what has been added up of the rows of one half of the tile that exist.
  KITTENS_DEVICE void give(decode_part<Config>& part, const tile_cursor& at, int half) const {
    if (row_of(at, half) >= p.rows()) return;
    decode_record<Config>& row = part.rows[arch::lane_id() / 4];
#pragma unroll
    for (int i = 0; i < 2 * kColTiles; ++i) {
      arch::store_shared(reinterpret_cast<float2*>(&row.o[column_of(i)]),
                         half == 0 ? pair_of<0>(i) : pair_of<1>(i));
    }
    if (arch::lane_id() % 4 == 0) {
      arch::store_shared(&row.sums, half == 0 ? float2{m[0], l[0]} : float2{m[1], l[1]});
    }
  }

 private:
  // Of the rows that this lane holds: one in each half of the tile.
  KITTENS_DEVICE int row_of(const tile_cursor& at, int half) const {
    return at.first_row + arch::lane_id() / 4 + 8 * half;
  }
  // Of the pairs of columns that it holds. Four elements of e4m3 are a word of ldmatrix, so there
  // it is the pairs 2 i and 2 i + 1 that are neighbours.
  KITTENS_DEVICE static int column_of(int i) {
    const int lane = arch::lane_id() % 4;
    return kFp8 ? i / 2 * 16 + lane * 4 + i % 2 * 2 : i * 8 + lane * 2;
  }
  template <int Half>
  KITTENS_DEVICE float2 pair_of(int i) const {
    if constexpr (kFp8) {
      return {o[i / 2 * 2][2 * Half + i % 2], o[i / 2 * 2 + 1][2 * Half + i % 2]};
    } else {
      return {o[i][2 * Half], o[i][2 * Half + 1]};
    }
  }

  KITTENS_DEVICE static void multiply(float (&sum)[4], const uint32_t (&a)[4],
                                      const uint32_t (&b)[2]) {
    arch::mma_m16n8k16<product>(sum, a, b, sum);
  }
  // Of two columns of e4m3 of two keys: those of the first in the low half.
  KITTENS_DEVICE static uint32_t by_columns(uint32_t by_keys) {
    return (by_keys & 0xff0000ff) | (by_keys >> 8 & 0xff00) | (by_keys & 0xff00) << 8;
  }

  // Queries as halves. Those of bf16 may be too large or too small for them, and are brought to
  // where the largest of the row is between 1 and 2; that and the scale of the keys are made up for
  // in the scores.
  KITTENS_DEVICE void take_as_halves(int half, int key_head) {
    scales[half] = p.scale;
    if (p.tensors.k_scale != nullptr) {
      scales[half] *= arch::load_global(p.tensors.k_scale + key_head);
    }
    if constexpr (!std::same_as<T, product>) {
      float values[2 * kColTiles][2], most = 0;
#pragma unroll
      for (int i = 0; i < 2 * kColTiles; ++i) {
        unpack<T>(values[i][0], values[i][1], queries[i / 2][i % 2 * 2 + half]);
        most = fmaxf(most, fmaxf(fabsf(values[i][0]), fabsf(values[i][1])));
      }
      most = fmaxf(most, arch::shuffle_xor(most, 1));
      most = fmaxf(most, arch::shuffle_xor(most, 2));
      const int exponent = larger(1, smaller(253, std::bit_cast<int>(most) >> 23));
      const float factor = std::bit_cast<float>((254 - exponent) << 23);
      scales[half] *= std::bit_cast<float>(exponent << 23);
#pragma unroll
      for (int i = 0; i < 2 * kColTiles; ++i) {
        queries[i / 2][i % 2 * 2 + half] =
            pack<product>(values[i][0] * factor, values[i][1] * factor);
      }
    }
  }

  KITTENS_DEVICE void scale() {
#pragma unroll
    for (int n = 0; n < 2 * kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] *= kFp8 ? scales[i / 2] : p.scale;
    }
  }

  // Adds up the scores of the two warps of a turn; both get the same sums. They meet once a tile:
  // who writes over what the other one reads has met it at the tile between.
  KITTENS_DEVICE void add_slices() {
    static_assert(Config::warps == 2);
    const int lane = arch::lane_id();
    auto& own = exchanges->scores.tiles[odd];
    auto& other = exchanges[team_place<2>::of_turn() == 0 ? 1 : -1].scores.tiles[odd];
    odd = !odd;
#pragma unroll
    for (int n = 0; n < 2 * kKeyTiles; ++n) {
      arch::store_shared(&own[n][lane], float4{s[n][0], s[n][1], s[n][2], s[n][3]});
    }
    team_place<2>::sync_turn();
#pragma unroll
    for (int n = 0; n < 2 * kKeyTiles; ++n) {
      const float4 more = arch::load_shared(&other[n][lane]);
      s[n][0] += more.x;
      s[n][1] += more.y;
      s[n][2] += more.z;
      s[n][3] += more.w;
    }
  }

  KITTENS_DEVICE void cap() {
#pragma unroll
    for (int n = 0; n < 2 * kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] = p.softcap * tanh_of(s[n][i]);
    }
  }

  KITTENS_DEVICE void mask(int first_key) {
#pragma unroll
    for (int n = 0; n < 2 * kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + n * 8 + arch::lane_id() % 4 * 2 + i % 2;
        if (key < first[i / 2] || key > last[i / 2]) s[n][i] = -INFINITY;
      }
    }
  }

  const decode_arguments& p;
  decode_exchange<Config>* exchanges;  // this warp's, beside those of the others
  bool odd = false;                    // of add_slices' two places
  uint32_t queries[kColTiles][4];      // 16 × 16 each, as a product's left side
  float o[2 * kColTiles][4];           // 16 × 8 each, as its result
  float s[2 * kKeyTiles][4];           // of a tile of keys; likewise
  uint32_t weights[kKeyTiles][4];
  float m[2], l[2];       // of this lane's rows
  float scales[2];        // of their scores, where the cache is of e4m3
  int first[2], last[2];  // the keys that they see
  needed_keys seen_by_all;
};

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
