// attention_decode: what a warp computes of an item.
//
//   s = scale · q kᵀ in powers of two, p = 2^(s − m), m the largest s so far or up to
//   kLargeExponent less; o += p v, l += p
//
// Products are of the transposes, sᵀ = k qᵀ and oᵀ += vᵀ pᵀ: mma.sync has 16 rows, which keys and
// columns fill, and 8 columns, of which a few queries leave less unused than of 16 rows.
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

// What one warp has of 8 rows of an item, a product's columns.
template <class Config>
struct decode_part {
  KITTENS_DEVICE decode_record<Config>& row(int i) { return records[place(i)]; }
  KITTENS_DEVICE const decode_record<Config>& row(int i) const { return records[place(i)]; }

 private:
  // Of rows 2 t and 2 t + 1 lane t of four has both: the four even rows lie in banks of their own.
  KITTENS_DEVICE static int place(int row) { return row / 2 + row % 2 * (kProductRows / 2); }

  decode_record<Config> records[kProductRows];
  float4 apart;  // parts lie 4 banks apart: the sums of a row are read at once
};

// What one warp adds to the scores of a tile of keys, which its slice of the columns gives, and to
// those of the tile before, which the other one may still be reading.
template <class Config>
struct decode_scores {
  float4 tiles[2][Config::row_tiles * kKeys / kBase][kWarp];
  float4 apart;  // as above
};

// Where a warp leaves what others add to theirs: of slices at each tile, of all of a team at an
// item's end.
template <class Config>
union decode_exchange {
  decode_scores<Config> scores;
  decode_part<Config> part;
};

// p is at most 2 to this, which float16 holds: rarely does a row's m have to move then.
inline constexpr float kLargeExponent = 8;

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
  static constexpr int kRowTiles = Config::row_tiles;  // of 8 queries

 public:
  KITTENS_DEVICE decode_item(const decode_arguments& p, decode_exchange<Config>* exchanges)
      : p(p), exchanges(exchanges) {}

  KITTENS_DEVICE void begin(const tile_cursor& at) {
    const auto* q = static_cast<const T*>(p.tensors.q) + at.b * p.q_strides.batch;
    const int key_head = key_head_of<Config>(at.key_head);
#pragma unroll
    for (int h = 0; h < kRowTiles; ++h) {
      const int row = at.first_row + h * kProductRows + arch::lane_id() / 4;
      const bool exists = row < p.rows();
      const int token = token_of(row);
      const int head = key_head * p.group + (exists ? row - token * p.group : 0);
      const T* data = q + token * p.q_strides.token + head * p.q_strides.head;
#pragma unroll
      for (int i = 0; i < 2 * kColTiles; ++i) {
        const int column = first_column<Config>() + query_column(i);
        const auto* pair = reinterpret_cast<const uint32_t*>(data + column);
        const bool has = exists && (!Config::is_padded || column < p.head_dim);
        queries[i / 2][h][i % 2] = has ? arch::load_global(pair) : 0;
      }
      if constexpr (kFp8) take_as_halves(h, key_head);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        last[h][j] = at.keys.length - p.queries + token_of(row_of(at, h, j));
        first[h][j] = last[h][j] - p.left;
        m[h][j] = -INFINITY;
        l[h][j] = 0;
      }
    }
    // The keys that all of the tile's queries see: the first row's are the earliest.
    seen_by_all = {arch::shuffle(first[kRowTiles - 1][1], kWarp - 1),
                   arch::shuffle(last[0][0], 0) + 1};
#pragma unroll
    for (int c = 0; c < kColTiles; ++c) {
#pragma unroll
      for (int i = 0; i < 4 * kRowTiles; ++i) o[c][i / 4][i % 4] = 0;
    }
  }

  // The three steps of a tile of keys. s = q kᵀ
  KITTENS_DEVICE void score(const tile_type& k) {
    using rows = rt<product, kBase, kBase>;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4 * kRowTiles; ++i) s[n][i / 4][i % 4] = 0;
    }
    const int from = detail::matrix_row<rows, tile_type>(arch::lane_id());
#pragma unroll
    for (int c = 0; c < Config::steps; ++c) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
        uint32_t words[4];
        arch::load_matrix<false>(
            words, &k.data[detail::moved_index<tile_type>(from, n * kBase, c * kBase)]);
        if constexpr (kFp8) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {  // of 16 bytes of a row
            const uint32_t a = words[2 * i], b = words[2 * i + 1];
            multiply(s[n], {halves_of(a), halves_of(b), halves_of(a >> 16), halves_of(b >> 16)},
                     queries[2 * c + i]);
          }
        } else {
          multiply(s[n], words, queries[c]);
        }
      }
    }
  }

  // p of s, as a product takes it.
  KITTENS_DEVICE void soften(int first_key) {
    scale();
    if constexpr (Config::slices > 1) add_slices();
    if constexpr (Config::heads > 1) team_place<Config::warps>::sync_turn();  // they read together
    if (p.softcap != 0) cap();
    if (first_key < seen_by_all.first || first_key + kKeys > seen_by_all.length) mask(first_key);
    rescale_if_large();
#pragma unroll
    for (int h = 0; h < kRowTiles; ++h) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float base = without_infinity(m[h][j]);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
          s[n][h][j] = arch::exp2_approx(s[n][h][j] - base);
          s[n][h][2 + j] = arch::exp2_approx(s[n][h][2 + j] - base);
          sum += s[n][h][j] + s[n][h][2 + j];
        }
        l[h][j] += sum;
      }
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {  // of 8 keys
          weights[n][h][i] =
              arch::transpose_matrix(pack<product>(s[n][h][2 * i], s[n][h][2 * i + 1]));
        }
      }
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
        if constexpr (kFp8) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {  // of 16 bytes of a row
            const uint32_t a = by_columns(words[i]), b = by_columns(words[2 + i]);
            multiply(o[2 * c + i],
                     {halves_of(a), halves_of(a >> 16), halves_of(b), halves_of(b >> 16)},
                     weights[n]);
          }
        } else {
          multiply(o[c], words, weights[n]);
        }
      }
    }
  }

  // Adds up l, of which each lane of a row has what its keys were.
  KITTENS_DEVICE void add_up() {
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
#pragma unroll
      for (int mask = 4; mask < kWarp; mask *= 2) {
        l[i / 2][i % 2] += arch::shuffle_xor(l[i / 2][i % 2], mask);
      }
    }
  }

  // Writes what has been added up of the rows of one tile of 8 that exist.
  KITTENS_DEVICE void give(decode_part<Config>& part, const tile_cursor& at, int row_tile) const {
    const auto of_tile = [&](const auto& values, int i) {
      return row_tile > 0 ? values[kRowTiles - 1][i] : values[0][i];
    };
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (row_of(at, row_tile, j) >= p.rows()) continue;
      decode_record<Config>& row = part.row(row_of_product(j));
#pragma unroll
      for (int c = 0; c < kColTiles; ++c) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          arch::store_shared(&row.o[value_column(c, i)], of_tile(o[c], 2 * i + j));
        }
      }
      if (arch::lane_id() < 4) {
        arch::store_shared(&row.sums, float2{of_tile(m, j), of_tile(l, j)});
      }
    }
  }

 private:
  // Of a product's columns, this lane's two.
  KITTENS_DEVICE static int row_of_product(int j) { return arch::lane_id() % 4 * 2 + j; }
  KITTENS_DEVICE static int row_of(const tile_cursor& at, int row_tile, int j) {
    return at.first_row + row_tile * kProductRows + row_of_product(j);
  }
  // Of a row; of one that does not exist the last one.
  KITTENS_DEVICE int token_of(int row) const {
    return row < p.rows() ? p.by_group.of(row) : p.queries - 1;
  }
  // The first of a pair of columns of queries. Four elements of e4m3 are a word of ldmatrix, so
  // there it is the pairs 2 i and 2 i + 1 that are neighbours.
  KITTENS_DEVICE static int query_column(int i) {
    const int lane = arch::lane_id() % 4;
    return kFp8 ? i / 2 * 16 + lane * 4 + i % 2 * 2 : i * 8 + lane * 2;
  }
  // Of o[c][..][2 i]. Of e4m3 a product's upper rows are the even columns.
  KITTENS_DEVICE static int value_column(int c, int i) {
    const int lane = arch::lane_id() / 4;
    return c * kBase + (kFp8 ? lane * 2 + i : lane + i * 8);
  }

  KITTENS_DEVICE static void multiply(float (&sum)[kRowTiles][4], const uint32_t (&a)[4],
                                      const uint32_t (&b)[kRowTiles][2]) {
#pragma unroll
    for (int h = 0; h < kRowTiles; ++h) arch::mma_m16n8k16<product>(sum[h], a, b[h], sum[h]);
  }
  // Of two columns of e4m3 of two keys: those of the first in the low half.
  KITTENS_DEVICE static uint32_t by_columns(uint32_t by_keys) {
    return (by_keys & 0xff0000ff) | (by_keys >> 8 & 0xff00) | (by_keys & 0xff00) << 8;
  }

  // Queries as halves. Those of bf16 may be too large or too small for them, and are brought to
  // where the largest of the row is between 1 and 2; that and the scale of the keys are made up for
  // in the scores.
  KITTENS_DEVICE void take_as_halves(int h, int key_head) {
    float row_scale = p.scale;  // of the row whose queries this lane has
    if (p.tensors.k_scale != nullptr) {
      row_scale *= arch::load_global(p.tensors.k_scale + key_head);
    }
    if constexpr (!std::same_as<T, product>) {
      float values[2 * kColTiles][2], most = 0;
#pragma unroll
      for (int i = 0; i < 2 * kColTiles; ++i) {
        unpack<T>(values[i][0], values[i][1], queries[i / 2][h][i % 2]);
        most = fmaxf(most, fmaxf(fabsf(values[i][0]), fabsf(values[i][1])));
      }
      most = fmaxf(most, arch::shuffle_xor(most, 1));
      most = fmaxf(most, arch::shuffle_xor(most, 2));
      const int exponent = larger(1, smaller(253, std::bit_cast<int>(most) >> 23));
      const float factor = std::bit_cast<float>((254 - exponent) << 23);
      row_scale *= std::bit_cast<float>(exponent << 23);
#pragma unroll
      for (int i = 0; i < 2 * kColTiles; ++i) {
        queries[i / 2][h][i % 2] = pack<product>(values[i][0] * factor, values[i][1] * factor);
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) scales[h][j] = arch::shuffle(row_scale, 4 * row_of_product(j));
  }

  KITTENS_DEVICE void scale() {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      score_at(i) *= kFp8 ? scales[i % kTileScores / 4][i % 2] : p.scale;
    }
  }

  // Brings m to the largest s of all lanes, and what has been added up to m, where an s is larger
  // than m by so much that p would be large.
  KITTENS_DEVICE void rescale_if_large() {
    float most[kRowTiles][2];
    bool large = false;
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      float& of_row = most[i / 2][i % 2];
      of_row = m[i / 2][i % 2];
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
        of_row = fmaxf(of_row, fmaxf(s[n][i / 2][i % 2], s[n][i / 2][2 + i % 2]));
      }
      large |= of_row > m[i / 2][i % 2] + kLargeExponent;
    }
    if (!arch::vote_any(large)) return;
    float decay[kRowTiles][2];
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      float& of_row = most[i / 2][i % 2];
#pragma unroll
      for (int mask = 4; mask < kWarp; mask *= 2) {
        of_row = fmaxf(of_row, arch::shuffle_xor(of_row, mask));
      }
      decay[i / 2][i % 2] = arch::exp2_approx(m[i / 2][i % 2] - without_infinity(of_row));
      m[i / 2][i % 2] = of_row;
      l[i / 2][i % 2] *= decay[i / 2][i % 2];
    }
#pragma unroll
    for (int c = 0; c < kColTiles; ++c) {
#pragma unroll
      for (int i = 0; i < 4 * kRowTiles; ++i) o[c][i / 4][i % 4] *= decay[i / 4][i % 2];
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
    for (int i = 0; i < kScores / 4; ++i) {
      const float (&four)[4] = s[i / kRowTiles][i % kRowTiles];
      arch::store_shared(&own[i][lane], float4{four[0], four[1], four[2], four[3]});
    }
    team_place<2>::sync_turn();
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      const float4 more = arch::load_shared(&other[i][lane]);
      float (&four)[4] = s[i / kRowTiles][i % kRowTiles];
      four[0] += more.x;
      four[1] += more.y;
      four[2] += more.z;
      four[3] += more.w;
    }
  }

  KITTENS_DEVICE void cap() {
#pragma unroll
    for (int i = 0; i < kScores; ++i) score_at(i) = p.softcap * tanh_of(score_at(i));
  }

  KITTENS_DEVICE void mask(int first_key) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int key = first_key + i / kTileScores * kBase + i % 4 / 2 * 8 + arch::lane_id() / 4;
      const int h = i % kTileScores / 4;
      if (key < first[h][i % 2] || key > last[h][i % 2]) score_at(i) = -INFINITY;
    }
  }

  // Number i of this lane's scores, and how many they are: of all, and of a tile of 16 keys.
  static constexpr int kTileScores = 4 * kRowTiles, kScores = kKeyTiles * kTileScores;
  KITTENS_DEVICE float& score_at(int i) { return s[i / kTileScores][i % kTileScores / 4][i % 4]; }

  const decode_arguments& p;
  decode_exchange<Config>* exchanges;  // this warp's, beside those of the others
  bool odd = false;                    // of add_slices' two places
  // Products' right sides, 16 columns or keys × 8 rows each: two words.
  uint32_t queries[kColTiles][kRowTiles][2], weights[kKeyTiles][kRowTiles][2];
  // And their results, 16 keys or columns × 8 rows each. A lane has two rows: elements 0 and 1, and
  // again 2 and 3.
  float s[kKeyTiles][kRowTiles][4], o[kColTiles][kRowTiles][4];
  float m[kRowTiles][2], l[kRowTiles][2];       // of this lane's rows
  float scales[kRowTiles][2];                   // of their scores, where the cache is of e4m3
  int first[kRowTiles][2], last[kRowTiles][2];  // the keys that they see
  needed_keys seen_by_all;
};

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
