// attention_decode: each warp is a worker with tiles of keys of its own
// (attention_decode_work.cuh).
//
// Memory-bound: keys and values are read once for each tile of 16 queries, past the first-level
// cache, through a ring of each warp's own: no warp ever waits for another, and loads run on from
// item to item. Of an item that a worker has alone it writes the output; of one that it shares, its
// part, which a second launch adds to the others' (attention_decode_combine.cuh).
//
//   s = scale · q kᵀ in powers of two, p = 2^(s − m), m the largest s so far; o += p v, l += p
#pragma once

#include "kernels/attention_decode/attention_decode_work.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

// T: bf16 or half. Width: of a head.
template <class T, int Width>
struct decode_config {
  using type = T;
  static constexpr int width = Width;
  static constexpr int stages = 384 / Width;  // of a warp: 48 KB
};

template <class Config>
struct decode_stage {
  st<typename Config::type, kKeys, Config::width> k, v;
};
template <class Config>
struct decode_shared {
  decode_stage<Config> rings[kWarps][Config::stages];
};

KITTENS_DEVICE float without_infinity(float m) { return m == -INFINITY ? 0.0f : m; }

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

// What loads tiles ahead of the products.
template <class Config>
class decode_loader {
  using T = typename Config::type;
  static constexpr int kRun = 16 / int(sizeof(T)), kRuns = Config::width / kRun;  // of a row
  static constexpr int kRowsAtOnce = kWarp / kRuns;

 public:
  KITTENS_DEVICE decode_loader(const decode_arguments& p, const tile_cursor& at) : p(p), at(at) {
    look_up();
  }

  // Starts the copies of a tile, and goes on to the next. What no query sees becomes zero.
  KITTENS_DEVICE void load(decode_stage<Config>& stage) {
    const int col = arch::lane_id() % kRuns * kRun;
    const auto* k = static_cast<const T*>(p.tensors.k) + at.key_head * p.k_strides.head + col;
    const auto* v = static_cast<const T*>(p.tensors.v) + at.key_head * p.v_strides.head + col;
#pragma unroll
    for (int first = 0; first < kKeys; first += kRowsAtOnce) {
      const int row = first + arch::lane_id() / kRuns;
      const int from = arch::shuffle(page, row), place = arch::shuffle(token, row);
      const bool there = from >= 0;
      const int64_t known = there ? from : 0;
      arch::cp_async<16>(&stage.k(row, col),
                         k + known * p.k_strides.batch + place * p.k_strides.token, there);
      arch::cp_async<16>(&stage.v(row, col),
                         v + known * p.v_strides.batch + place * p.v_strides.token, there);
    }
  }
  KITTENS_DEVICE void advance() {
    at.advance(p);
    look_up();
  }

 private:
  // Where this lane's key of the tile lies. (A tile ahead, for the table takes a while to answer.)
  KITTENS_DEVICE void look_up() {
    const int key = at.first_key() + arch::lane_id();
    page = -1;
    token = 0;
    if (key < at.keys.first || key >= at.keys.length) return;
    page = at.b;
    token = key;
    if (p.paged) {
      const int column = key / p.page_size;
      token = key - column * p.page_size;
      const int entry = arch::load_global(p.tensors.table + at.b * p.table_stride + column);
      page = smaller(larger(entry, 0), p.pages - 1);
    }
  }

  const decode_arguments& p;
  tile_cursor at;
  int page, token;  // of this lane's key; −1: no query sees it
};

// The products of one worker: an item's queries, and what has been added up of it.
template <class Config>
class decode_item {
  using T = typename Config::type;
  using tile_type = st<T, kKeys, Config::width>;
  static constexpr int kColTiles = Config::width / kBase, kKeyTiles = kKeys / kBase;

 public:
  KITTENS_DEVICE explicit decode_item(const decode_arguments& p) : p(p) {}

  KITTENS_DEVICE void begin(const tile_cursor& at) {
    const auto* q = static_cast<const T*>(p.tensors.q) + at.b * p.q_strides.batch;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(at, half);
      const bool exists = row < p.rows();
      const int token = exists ? row / p.group : p.queries - 1;
      const int head = at.key_head * p.group + (exists ? row % p.group : 0);
      last[half] = at.keys.length - p.queries + token;
      first[half] = last[half] - p.left;
      const T* data = q + token * p.q_strides.token + head * p.q_strides.head;
#pragma unroll
      for (int i = 0; i < 2 * kColTiles; ++i) {
        const T* pair = data + i * 8 + arch::lane_id() % 4 * 2;
        queries[i / 2][i % 2 * 2 + half] =
            exists ? arch::load_global(reinterpret_cast<const uint32_t*>(pair)) : 0;
      }
      m[half] = -INFINITY;
      l[half] = 0;
    }
    // The keys that all of the tile's queries see.
    const int end = smaller(at.first_row + kRows, p.rows());
    seen_by_all = {at.keys.length - p.queries + (end - 1) / p.group - p.left,
                   at.keys.length - p.queries + at.first_row / p.group + 1};
#pragma unroll
    for (int i = 0; i < 2 * kColTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) o[i][j] = 0;
    }
  }

  KITTENS_DEVICE void add(const decode_stage<Config>& stage, int first_key) {
    float s[2 * kKeyTiles][4] = {};
    score(s, stage.k);
    scale(s);
    if (first_key < seen_by_all.first || first_key + kKeys > seen_by_all.length) {
      mask(s, first_key);
    }
    uint32_t weights[kKeyTiles][4];
    soften(weights, s);
    add_values(weights, stage.v);
  }

  // Adds up l, of which each lane of a row has what its columns were.
  KITTENS_DEVICE void add_up() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      l[half] += arch::shuffle_xor(l[half], 1);
      l[half] += arch::shuffle_xor(l[half], 2);
    }
  }

  KITTENS_DEVICE void store_output(const tile_cursor& at) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(at, half);
      if (row >= p.rows()) continue;
      const int head = at.key_head * p.group + row % p.group;
      float factor = 1, sum = l[half];
      if (p.tensors.sinks != nullptr) {
        const float sink = arch::load_global(p.tensors.sinks + head) * kLog2e;
        const float most = without_infinity(fmaxf(m[half], sink));
        factor = arch::exp2_approx(m[half] - most);
        sum = fmaf(sum, factor, arch::exp2_approx(sink - most));
      }
      factor = sum == 0 ? 0.0f : factor / sum;  // 0: no key
      T* data = static_cast<T*>(p.tensors.o) + at.b * p.o_strides.batch +
                row / p.group * p.o_strides.token + head * p.o_strides.head;
#pragma unroll
      for (int i = 0; i < 2 * kColTiles; ++i) {
        arch::store_global(reinterpret_cast<uint32_t*>(data + i * 8 + arch::lane_id() % 4 * 2),
                           pack<T>(o[i][2 * half] * factor, o[i][2 * half + 1] * factor));
      }
    }
  }

  KITTENS_DEVICE void store_part(const tile_cursor& at, int slot) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row_of(at, half) >= p.rows()) continue;
      const int row = slot * kRows + arch::lane_id() / 4 + 8 * half;
      float* data = p.parts + int64_t{row} * Config::width + arch::lane_id() % 4 * 2;
#pragma unroll
      for (int i = 0; i < 2 * kColTiles; ++i) {
        arch::store_global(reinterpret_cast<float2*>(data + i * 8),
                           {o[i][2 * half], o[i][2 * half + 1]});
      }
      if (arch::lane_id() % 4 == 0) {
        arch::store_global(reinterpret_cast<float2*>(p.sums) + row, {m[half], l[half]});
      }
    }
  }

 private:
  // Of the rows that this lane holds: one in each half of the tile.
  KITTENS_DEVICE int row_of(const tile_cursor& at, int half) const {
    return at.first_row + arch::lane_id() / 4 + 8 * half;
  }

  // s = q kᵀ
  KITTENS_DEVICE void score(float (&s)[2 * kKeyTiles][4], const tile_type& k) const {
    using rows = rt<T, kBase, kBase>;
    const int from = detail::matrix_row<rows, tile_type>(arch::lane_id());
#pragma unroll
    for (int c = 0; c < kColTiles; ++c) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
        uint32_t words[4];
        arch::load_matrix<false>(
            words, &k.data[detail::moved_index<tile_type>(from, n * kBase, c * kBase)]);
        arch::mma_m16n8k16<T>(s[2 * n], queries[c], {words[0], words[2]}, s[2 * n]);
        arch::mma_m16n8k16<T>(s[2 * n + 1], queries[c], {words[1], words[3]}, s[2 * n + 1]);
      }
    }
  }

  KITTENS_DEVICE void scale(float (&s)[2 * kKeyTiles][4]) const {
    const bool capped = p.softcap != 0;
#pragma unroll
    for (int n = 0; n < 2 * kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] *= p.scale;
    }
    if (!capped) return;
#pragma unroll
    for (int n = 0; n < 2 * kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] = p.softcap * tanh_of(s[n][i]);
    }
  }

  KITTENS_DEVICE void mask(float (&s)[2 * kKeyTiles][4], int first_key) const {
#pragma unroll
    for (int n = 0; n < 2 * kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + n * 8 + arch::lane_id() % 4 * 2 + i % 2;
        if (key < first[i / 2] || key > last[i / 2]) s[n][i] = -INFINITY;
      }
    }
  }

  // The weights of a tile, as a product takes them; what has been added up is brought to their m.
  KITTENS_DEVICE void soften(uint32_t (&weights)[kKeyTiles][4], float (&s)[2 * kKeyTiles][4]) {
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
      const float decay = arch::exp2_approx(m[half] - base);
      m[half] = most;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < 2 * kKeyTiles; ++n) {
        s[n][2 * half] = arch::exp2_approx(s[n][2 * half] - base);
        s[n][2 * half + 1] = arch::exp2_approx(s[n][2 * half + 1] - base);
        sum += s[n][2 * half] + s[n][2 * half + 1];
        weights[n / 2][n % 2 * 2 + half] = pack<T>(s[n][2 * half], s[n][2 * half + 1]);
      }
      l[half] = fmaf(l[half], decay, sum);
#pragma unroll
      for (int i = 0; i < 2 * kColTiles; ++i) {
        o[i][2 * half] *= decay;
        o[i][2 * half + 1] *= decay;
      }
    }
  }

  // o += p v
  KITTENS_DEVICE void add_values(const uint32_t (&weights)[kKeyTiles][4], const tile_type& v) {
    using columns = rt<T, kBase, kBase, ducks::rt_layout::col>;
    const int from = detail::matrix_row<columns, tile_type>(arch::lane_id());
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int c = 0; c < kColTiles; ++c) {
        uint32_t words[4];
        arch::load_matrix<true>(
            words, &v.data[detail::moved_index<tile_type>(from, n * kBase, c * kBase)]);
        arch::mma_m16n8k16<T>(o[2 * c], weights[n], {words[0], words[2]}, o[2 * c]);
        arch::mma_m16n8k16<T>(o[2 * c + 1], weights[n], {words[1], words[3]}, o[2 * c + 1]);
      }
    }
  }

  const decode_arguments& p;
  uint32_t queries[kColTiles][4];  // 16 × 16 each, as a product's left side
  float o[2 * kColTiles][4];       // 16 × 8 each, as its result; so are scores
  float m[2], l[2];                // of this lane's rows
  int first[2], last[2];           // the keys that they see
  needed_keys seen_by_all;
};

template <class Config>
__global__ __launch_bounds__(kWarps* kWarp,
                             1) void attention_decode(const __grid_constant__ decode_arguments p) {
  begin_dependent_grid();
  auto& shared = *reinterpret_cast<decode_shared<Config>*>(arch::dynamic_shared());
  decode_stage<Config>(&ring)[Config::stages] = shared.rings[arch::warp_id()];
  const int worker = arch::block_x() * kWarps + arch::warp_id();
  const tile_ranges all = tile_ranges::of(p, tile_sums::of(p, 0).all);
  const int range = worker >> p.abreast;
  if (range >= all.ranges) return;
  const int first = all.first_of(range), end = all.first_of(range + 1);

  tile_cursor at(worker % (1 << p.abreast));
  at.seek(p, first);
  decode_loader<Config> loader(p, at);
  int requested = first;
  const auto request = [&] {
    if (requested < end) {
      loader.load(ring[(requested - first) % Config::stages]);
      if (++requested < end) loader.advance();
    }
    arch::cp_async_commit();  // of nothing, too: waits count groups
  };
#pragma unroll
  for (int i = 0; i < Config::stages - 1; ++i) request();

  decode_item<Config> item(p);
  bool has_start = false;  // of the item at hand
  for (int t = first; t < end; ++t) {
    if (t == first || at.is_first()) {
      has_start = at.is_first();
      item.begin(at);
    }
    arch::cp_async_wait<Config::stages - 2>();
    arch::sync_warp();  // all lanes' copies have landed, and all have read the stage requested next
    request();
    item.add(ring[(t - first) % Config::stages], at.first_key());
    if (at.is_last() || t == end - 1) {
      item.add_up();
      if (has_start && at.is_last()) {
        item.store_output(at);
      } else {
        item.store_part(at, 2 * worker + (has_start ? 1 : 0));
      }
    }
    at.advance(p);
  }
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
