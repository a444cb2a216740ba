// attention_decode: what a warp computes of an item.
//
//   s = scale · q kᵀ in powers of two, p = 2^(s − m), m the largest s so far, or up to
//   kLargeExponent less; o += p v, l += p
//
// mma.sync has 16 rows and 8 columns. The 16 queries of an item are its rows, keys and columns of v
// its columns. Where queries are few, products are of the transposes, sᵀ = k qᵀ and oᵀ += vᵀ pᵀ:
// keys and columns of v are the rows, and 8 queries the columns, which leave less of them unused.
#pragma once

#include <bit>
#include <concepts>

#include "kernels/attention_decode/attention_decode_rows.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

// p is at most 2 to this, which float16 holds: m rarely has to move then. (Of 16 rows that is not
// measured.)
template <class Config>
inline constexpr float kLargeExponent = Config::few_rows ? 8 : 0;

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
  static constexpr bool kFp8 = Config::is_fp8, kFew = Config::few_rows;
  static constexpr int kColTiles = Config::columns / kBase, kKeyTiles = kKeys / kBase;
  static constexpr int kHalves = Config::halves;

 public:
  KITTENS_DEVICE decode_item(const decode_arguments& p, decode_exchange<Config>* exchanges)
      : p(p), exchanges(exchanges) {}

  KITTENS_DEVICE void begin(const tile_cursor& at) {
    const auto* q = static_cast<const T*>(p.tensors.q) + at.b * p.q_strides.batch;
    const int key_head = key_head_of<Config>(at.key_head);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int row = at.first_row + half * kHalfRows + arch::lane_id() / 4;
      const bool exists = row < p.rows();
      const int token = token_of(row);
      const int head = key_head * p.group + (exists ? row - token * p.group : 0);
      const T* data = q + token * p.q_strides.token + head * p.q_strides.head;
#pragma unroll
      for (int i = 0; i < 2 * kColTiles; ++i) {
        const int column = first_column<Config>() + column_of(i);
        const auto* pair = reinterpret_cast<const uint32_t*>(data + column);
        const bool has = exists && (!Config::is_padded || column < p.head_dim);
        queries[i / 2][half][i % 2] = has ? arch::load_global(pair) : 0;
      }
      if constexpr (kFp8) take_as_halves(half, key_head);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      last[i] = at.keys.length - p.queries + token_of(at.first_row + row_of(i));
      first[i] = last[i] - p.left;
      m[i] = -INFINITY;
      l[i] = 0;
    }
    // The keys that all of the tile's queries see: the first row's are the earliest.
    seen_by_all = {arch::shuffle(first[1], kWarp - 1), arch::shuffle(last[0], 0) + 1};
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum_at(i) = 0;
  }

  // The three steps of a tile of keys. s = q kᵀ
  KITTENS_DEVICE void score(const tile_type& k) {
    using rows = rt<product, kBase, kBase>;
#pragma unroll
    for (int i = 0; i < kScores; ++i) score_at(i) = 0;
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
    for (int i = 0; i < kScores; ++i) {
      float& x = score_at(i);
      x = arch::exp2_approx(x - without_infinity(m[row_of_element(i)]));
      l[row_of_element(i)] += x;
    }
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2 * kHalves; ++i) {
        const float (&four)[4] = s[n][i / 2];  // of 8 keys, or of 16
        const uint32_t pair = pack<product>(four[i % 2 * 2], four[i % 2 * 2 + 1]);
        if constexpr (kFew) {
          weights[n][0][i] = arch::transpose_matrix(pair);
        } else {
          weights[n][i % 2][i / 2] = pair;
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
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int mask = kFirstLane; mask < kEndLane; mask *= 2) {
        l[i] += arch::shuffle_xor(l[i], mask);
      }
    }
  }

  // Writes what has been added up of the rows that exist, of one half of 16.
  KITTENS_DEVICE void give(decode_part<Config>& part, const tile_cursor& at, int half) const {
    if constexpr (kFew) {
      give_row<0>(part, at, row_of(0));
      give_row<1>(part, at, row_of(1));
    } else if (half == 0) {
      give_row<0>(part, at, arch::lane_id() / 4);
    } else {
      give_row<1>(part, at, arch::lane_id() / 4);
    }
  }

 private:
  // Lanes that have a row are 2^i apart, from the first to before the end.
  static constexpr int kFirstLane = kFew ? 4 : 1, kEndLane = kFew ? kWarp : 4;

  // This lane's two rows of a tile.
  KITTENS_DEVICE static int row_of(int i) {
    return kFew ? arch::lane_id() % 4 * 2 + i : arch::lane_id() / 4 + i * kHalfRows;
  }
  // Which of them an element of a product's result is of.
  static constexpr int row_of_element(int i) { return kFew ? i % 2 : i % 4 / 2; }
  // Of a row; of one that does not exist the last one.
  KITTENS_DEVICE int token_of(int row) const {
    return row < p.rows() ? p.by_group.of(row) : p.queries - 1;
  }
  // The first of a pair of columns that a lane has of a row. Four elements of e4m3 are a word of
  // ldmatrix, so there it is the pairs 2 i and 2 i + 1 that are neighbours.
  KITTENS_DEVICE static int column_of(int i) {
    const int lane = arch::lane_id() % 4;
    return kFp8 ? i / 2 * 16 + lane * 4 + i % 2 * 2 : i * 8 + lane * 2;
  }

  // This lane's row number Row, to row `to` of a part.
  template <int Row>
  KITTENS_DEVICE void give_row(decode_part<Config>& part, const tile_cursor& at, int to) const {
    if (at.first_row + row_of(Row) >= p.rows()) return;
    decode_record<Config>& row = part.row(to);
#pragma unroll
    for (int c = 0; c < kColTiles; ++c) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (kFew) {
          // Of e4m3 the even columns are a product's upper 8 rows.
          const int lane = arch::lane_id() / 4;
          const int column = c * kBase + (kFp8 ? lane * 2 + i : lane + i * 8);
          arch::store_shared(&row.o[column], o[c][0][2 * i + Row]);
        } else {
          const float2 pair = kFp8 ? float2{o[c][0][2 * Row + i], o[c][1][2 * Row + i]}
                                   : float2{o[c][i][2 * Row], o[c][i][2 * Row + 1]};
          arch::store_shared(reinterpret_cast<float2*>(&row.o[column_of(2 * c + i)]), pair);
        }
      }
    }
    const bool is_first = kFew ? arch::lane_id() < kFirstLane : arch::lane_id() % kEndLane == 0;
    if (is_first) arch::store_shared(&row.sums, float2{m[Row], l[Row]});
  }

  // Adds a product of 16 keys or columns, a, with the rows, b.
  KITTENS_DEVICE static void multiply(float (&sum)[kHalves][4], const uint32_t (&a)[4],
                                      const uint32_t (&b)[kHalves][2]) {
    if constexpr (kFew) {
      arch::mma_m16n8k16<product>(sum[0], a, b[0], sum[0]);
    } else {
      const uint32_t rows[4] = {b[0][0], b[1][0], b[0][1], b[1][1]};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        arch::mma_m16n8k16<product>(sum[i], rows, {a[i], a[2 + i]}, sum[i]);
      }
    }
  }
  // Of two columns of e4m3 of two keys: those of the first in the low half.
  KITTENS_DEVICE static uint32_t by_columns(uint32_t by_keys) {
    return (by_keys & 0xff0000ff) | (by_keys >> 8 & 0xff00) | (by_keys & 0xff00) << 8;
  }

  // Queries as halves. Those of bf16 may be too large or too small for them, and are brought to
  // where the largest of the row is between 1 and 2; that and the scale of the keys are made up for
  // in the scores.
  KITTENS_DEVICE void take_as_halves(int half, int key_head) {
    float row_scale = p.scale;  // of the row whose queries this lane has
    if (p.tensors.k_scale != nullptr) {
      row_scale *= arch::load_global(p.tensors.k_scale + key_head);
    }
    if constexpr (!std::same_as<T, product>) {
      float values[2 * kColTiles][2], most = 0;
#pragma unroll
      for (int i = 0; i < 2 * kColTiles; ++i) {
        unpack<T>(values[i][0], values[i][1], queries[i / 2][half][i % 2]);
        most = fmaxf(most, fmaxf(fabsf(values[i][0]), fabsf(values[i][1])));
      }
      most = fmaxf(most, arch::shuffle_xor(most, 1));
      most = fmaxf(most, arch::shuffle_xor(most, 2));
      const int exponent = larger(1, smaller(253, std::bit_cast<int>(most) >> 23));
      const float factor = std::bit_cast<float>((254 - exponent) << 23);
      row_scale *= std::bit_cast<float>(exponent << 23);
#pragma unroll
      for (int i = 0; i < 2 * kColTiles; ++i) {
        queries[i / 2][half][i % 2] = pack<product>(values[i][0] * factor, values[i][1] * factor);
      }
    }
    if constexpr (kFew) {
#pragma unroll
      for (int i = 0; i < 2; ++i) scales[i] = arch::shuffle(row_scale, 4 * row_of(i));
    } else {
      scales[half] = row_scale;
    }
  }

  KITTENS_DEVICE void scale() {
#pragma unroll
    for (int i = 0; i < kScores; ++i) score_at(i) *= kFp8 ? scales[row_of_element(i)] : p.scale;
  }

  // Brings m to the largest s of all lanes, and what has been added up to m, where an s is larger
  // than m by so much that p would be large.
  KITTENS_DEVICE void rescale_if_large() {
    float most[2] = {m[0], m[1]}, decay[2];
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      most[row_of_element(i)] = fmaxf(most[row_of_element(i)], score_at(i));
    }
    const auto is_large = [&](int i) { return most[i] > m[i] + kLargeExponent<Config>; };
    if (!arch::vote_any(is_large(0) || is_large(1))) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int mask = kFirstLane; mask < kEndLane; mask *= 2) {
        most[i] = fmaxf(most[i], arch::shuffle_xor(most[i], mask));
      }
      decay[i] = arch::exp2_approx(m[i] - without_infinity(most[i]));
      m[i] = most[i];
      l[i] *= decay[i];
    }
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum_at(i) *= decay[row_of_element(i)];
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
      const float (&four)[4] = s[i / kHalves][i % kHalves];
      arch::store_shared(&own[i][lane], float4{four[0], four[1], four[2], four[3]});
    }
    team_place<2>::sync_turn();
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      const float4 more = arch::load_shared(&other[i][lane]);
      float (&four)[4] = s[i / kHalves][i % kHalves];
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
      const int of_keys = kFew ? i % 4 / 2 * 8 + arch::lane_id() / 4
                               : i % 8 / 4 * 8 + arch::lane_id() % 4 * 2 + i % 2;
      const int key = first_key + i / (4 * kHalves) * kBase + of_keys, row = row_of_element(i);
      if (key < first[row] || key > last[row]) score_at(i) = -INFINITY;
    }
  }

  // How many scores and sums this lane has, and number i of them.
  static constexpr int kScores = kKeyTiles * kHalves * 4, kSums = kColTiles * kHalves * 4;
  KITTENS_DEVICE float& score_at(int i) { return s[i / (4 * kHalves)][i / 4 % kHalves][i % 4]; }
  KITTENS_DEVICE float& sum_at(int i) { return o[i / (4 * kHalves)][i / 4 % kHalves][i % 4]; }

  const decode_arguments& p;
  decode_exchange<Config>* exchanges;  // this warp's, beside those of the others
  bool odd = false;                    // of add_slices' two places
  // What products take of the rows, 16 columns or keys × 8 rows each.
  uint32_t queries[kColTiles][kHalves][2], weights[kKeyTiles][kHalves][2];
  // And their results: of 16 keys or columns × 8 rows, or of two times 16 rows × 8 of them.
  float s[kKeyTiles][kHalves][4], o[kColTiles][kHalves][4];
  float m[2], l[2];       // of this lane's rows
  float scales[2];        // of their scores, where the cache is of e4m3
  int first[2], last[2];  // the keys that they see
  needed_keys seen_by_all;
};

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
