// hedgehog attention, forward, for every architecture since sm_80: the function of
// hedgehog_attention_forward.cuh by mma.sync, ldmatrix and cp.async, one block of 64 tokens after
// the other.
//
// A block of threads has a head: all of its sequence, or a segment. Each of its eight warps has 16
// columns of v and y, and their state, Sᵀ [16, 128 features], in its registers. So that the state
// is a product's left side as it lies there, y is computed transposed:
//
//   logits    of 64 rows and 16 columns of a map, which a warp has in registers: of the queries by
//             four warps, of the window's first keys, which enter the state, by the other four
//   scores    of 16 queries and half of the window, as weights relative to their own maximum
//   yᵀ = Sᵀ φ(q)ᵀ + vᵀ weightsᵀ         each warp
//   Sᵀ = Sᵀ + vᵀ φ(k)                   each warp, with the values of the window's first keys
//
// Maxima and sums of exponentials are exchanged once, of scores and logits together: of each part
// relative to its own maximum. Features take the place of what they are of, in shared memory, and
// weights that of the next keys. So 90 KiB suffice, and all architectures have the same form.
//
// Synchronisation, a block of tokens: all meet once its parts are there, and again with features
// and weights; once y's products are done, the next queries and keys are asked for, while features
// enter the state; and all wait for them and meet.
//
// Rounding: as the kernel for Hopper. Features, weights and the state before each block (Hopper:
// each pair of blocks) are rounded to v's type for a product.
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_generic_features.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class hedgehog_generic_block {
 public:
  using arguments = hedgehog_generic_arguments<typename Config::type>;

  KITTENS_DEVICE hedgehog_generic_block(const arguments& p,
                                        hedgehog_attention_generic_shared<Config>& shared)
      : p(p), shared(shared), stream(shared.stream), warp(arch::warp_id()) {}

  KITTENS_DEVICE void compute() {
    load_maps();
    load_state();
    request_keys(0);
    if constexpr (Config::outputs) {
      request_keys(1);
      request_queries(0);
      request_values(0, shared.keys[2]);
      request_values(1, shared.values);
    } else {
      request_values(0, shared.values);
    }
    await_copies();
    if constexpr (Config::outputs) load_values(previous, shared.keys[2]);
#pragma unroll 1
    for (int step = 0; step < stream.count; ++step) {
      if constexpr (Config::outputs) {
        attend(step);
      } else {
        find_state(step);
      }
    }
    store_state();
  }

 private:
  using T = typename Config::type;
  using token_tile = typename Config::token_tile;
  using square = typename Config::square;
  using values = rt<T, 16, kBlock>;  // transposed: [values, tokens]
  using scores = rt_fl<16, kBlock>;
  using slice = feature_slice<T, Config::logit_rows>;

  const arguments& p;
  hedgehog_attention_generic_shared<Config>& shared;
  const block_stream& stream;
  const int warp;
  rt_fl<16, kWidth> state;  // [values, features]
  slice features;
  values previous;  // of the window's first keys
  generic_sums<T> sums;

  KITTENS_DEVICE void meet() const { arch::sync_block(); }
  KITTENS_DEVICE int first_value() const { return warp * 16; }
  // Of outputs: which half of the window this warp has the scores of; and whether it has logits of
  // keys, else of queries.
  KITTENS_DEVICE int half() const { return warp / 4; }
  KITTENS_DEVICE bool has_keys() const { return !Config::outputs || half() == 1; }
  KITTENS_DEVICE int warp_row() const { return warp % 4 * 16; }  // of the queries
  KITTENS_DEVICE int logit_row() const { return Config::outputs ? 0 : half() * (kBlock / 2); }

  // ---- Tiles that come --------------------------------------------------------------------------

  KITTENS_DEVICE void await_copies() const {
    load_async_wait<0>();
    meet();
  }
  // Block n of keys or values, counted from the first.
  KITTENS_DEVICE void request(token_tile& tile, const T* head, const token_rows<T>& of, int n) {
    request_rows<Config::threads>(tile, head, of.strides.token, of.columns,
                                  (stream.begin + n) * kBlock, p.missing, p.length + kBlock);
    load_async_commit();
  }
  KITTENS_DEVICE void request_keys(int n) {
    request(shared.keys[n % shared.kBlocks], shared.places.k, p.k, n);
  }
  KITTENS_DEVICE void request_values(int n, token_tile& tile) {
    request(tile, shared.places.v, p.v, n);
  }
  KITTENS_DEVICE void request_queries(int step) {
    request_rows<Config::threads>(shared.queries, shared.places.q, p.q.strides.token, p.q.columns,
                                  (stream.begin + step) * kBlock, 0, p.length);
    load_async_commit();
  }

  // This warp's slice of a map, by way of where keys and values will be.
  KITTENS_DEVICE void load_maps() {
    using map_tile = typename Config::map_tile;
    static_assert(sizeof(map_tile) == sizeof(token_tile));
    map_tile& of_keys = reinterpret_cast<map_tile&>(shared.keys[0]);
    map_tile& of_queries = reinterpret_cast<map_tile&>(shared.keys[1]);
    const int64_t head = int64_t{stream.head} * p.head_dim * kHalf;
    request_rows<Config::threads>(of_keys, p.k_map + head, kHalf, kHalf, 0, 0, p.head_dim);
    if constexpr (Config::outputs) {
      request_rows<Config::threads>(of_queries, p.q_map + head, kHalf, kHalf, 0, 0, p.head_dim);
    }
    load_async_commit();
    await_copies();
    features.load(has_keys() ? of_keys : of_queries, warp % Config::slices * slice::kColumns);
    meet();  // all have read them
  }

  KITTENS_DEVICE void load_values(values& v, const token_tile& tile) const {
#pragma unroll
    for (int i = 0; i < kBlock / 16; ++i) {
      load_left<true>(v.data[0] + 4 * i, tile, 16 * i, first_value());
    }
  }

  // ---- What enters the state --------------------------------------------------------------------

  // 1; 0 of what does not exist, and of the last 64 tokens, which stay in the window.
  KITTENS_DEVICE float enters(int step, int i) const {
    const int row = (stream.begin + step) * kBlock + slice::row(logit_row(), i);
    return row >= stream.first_row && row < p.length ? 1.0f : 0.0f;
  }
  KITTENS_DEVICE void store_key_features(token_tile& keys, int step) {
    features.store(
        keys, logit_row(), shared.of_keys, [&](int i) { return enters(step, i); },
        [](int, int, const float (&)[4]) {});
  }
  // state += φ(k) v, where φ(k) is in the keys' place.
  KITTENS_DEVICE void add_to_state(const values& v, const token_tile& of_keys) {
    mma_AB(state, v, of_keys, state);
    sums.add(of_keys);
  }

  // A step without outputs.
  KITTENS_DEVICE void find_state(int step) {
    token_tile& keys = shared.keys[step % 2];
    if (step + 1 < stream.count) request_keys(step + 1);
    features.multiply(keys, logit_row(), shared.of_keys);
    load_values(previous, shared.values);
    meet();  // all parts are there; keys and values have been read
    if (step + 1 < stream.count) request_values(step + 1, shared.values);
    store_key_features(keys, step);
    meet();  // the features are there
    add_to_state(previous, keys);
    await_copies();  // and all have read the features
  }

  // ---- Outputs ----------------------------------------------------------------------------------

  KITTENS_DEVICE void attend(int step) {
    token_tile& keys = shared.keys[step % 3];  // the first of the window
    token_tile& free = shared.keys[(step + 2) % 3];
    square(&weights)[2] = reinterpret_cast<square(&)[2]>(free);
    scores s;
    score(s, shared.keys[(step + half()) % 3], step);
    features.multiply(has_keys() ? keys : shared.queries, 0,
                      has_keys() ? shared.of_keys : shared.of_queries);
    meet();  // all parts are there; queries and keys have been read
    weigh(s);
    group<4>::store_unfenced(weights[half()], s);
    if (has_keys()) {
      store_key_features(keys, step);
    } else {
      store_query_features();
    }
    values own;
    load_values(own, shared.values);
    meet();  // features and weights are there; values have been read
    if (step + 1 < stream.count) request_values(step + 2, shared.values);
    leave_reciprocals();
    scores y;  // [values, queries]
    {
      rt<T, 16, kWidth> left;
      copy(left, state);
      mm_ABt(y, left, shared.queries);
    }
    mma_ABt(y, previous, weights[0], y);
    mma_ABt(y, own, weights[1], y);
    meet();  // queries' features and weights have been read; reciprocals are there
    if (step + 1 < stream.count) {
      request_queries(step + 1);
      request_keys(step + 2);
    }
    add_to_state(previous, keys);
    sums.publish(shared.sums);
    copy(previous, own);
    store_outputs(y, step);
    await_copies();  // and all have read the keys' features
  }

  // Of this warp's queries and half of the window; and what is left of them for the other half.
  KITTENS_DEVICE void score(scores& s, const token_tile& keys, int step) {
    rt<T, 16, kWidth> q;
    group<4>::load(q, shared.queries);
    mm_ABt(s, q, keys);
    if (half() == 1) tril(s, s, warp_row(), -INFINITY);
    if (half() == 0 && stream.begin + step == 0) {
      left_fill(s, s, stream.first_row, -INFINITY);
    }
    const float scale = p.score_scale;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float largest = -INFINITY, sum = 0;
      for_each_of_row(s, i, [&](float& x) { largest = fmaxf(largest, x); });
      largest = scale * row_maximum(largest);
      const float reference = largest == -INFINITY ? 0 : largest;  // of no key
      for_each_of_row(s, i, [&](float& x) {
        x = arch::exp2_approx(fmaf(x, scale, -reference));
        sum += x;
      });
      sum = row_total(sum);
      if (arch::lane_id() % 4 == 0) shared.of_window[row(i)][half()] = {largest, sum};
    }
  }
  // Weights relative to the window's maxima.
  KITTENS_DEVICE void weigh(scores& s) const {
    const float beta = arch::load_global(p.beta + stream.head);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float largest = window_maximum(row(i));
      const float factor =
          beta * arch::exp2_approx(shared.of_window[row(i)][half()].largest - largest);
      for_each_of_row(s, i, [&](float& x) { x *= factor; });
    }
  }
  KITTENS_DEVICE float window_maximum(int row) const {
    return fmaxf(shared.of_window[row][0].largest, shared.of_window[row][1].largest);
  }
  // Row i of this lane's two.
  KITTENS_DEVICE int row(int i) const { return warp_row() + 8 * i + arch::lane_id() / 4; }
  template <class F>
  KITTENS_DEVICE static void for_each_of_row(scores& s, int i, F f) {
#pragma unroll
    for (int j = 0; j < kBlock / 4; ++j) f(s.data[0][j / 2 * 4 + 2 * i + j % 2]);
  }

  // φ(q), times alpha; and of what it adds up to by the sums of keys' features this slice's part.
  KITTENS_DEVICE void store_query_features() {
    const float alpha = arch::load_global(p.alpha + stream.head);
    float linear[slice::kRowsOfLane] = {};
    float of_columns[2][4];
#pragma unroll
    for (int softmax = 0; softmax < 2; ++softmax) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = softmax * kHalf + features.first_column() + j / 2 * 8 + j % 2;
        float sum = 0;
#pragma unroll
        for (int part = 0; part < 4; ++part) sum += shared.sums[part].data[column];
        of_columns[softmax][j] = sum;
      }
    }
    features.store(
        shared.queries, 0, shared.of_queries, [&](int) { return alpha; },
        [&](int i, int softmax, const float (&of_row)[4]) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            linear[i] = fmaf(of_row[j], of_columns[softmax][j], linear[i]);
          }
        });
#pragma unroll
    for (int i = 0; i < slice::kRowsOfLane; ++i) {
      linear[i] = row_total(linear[i]);
      if (arch::lane_id() % 4 != 0) continue;
      shared.linear[warp].data[slice::row(0, i)] = linear[i];
    }
  }

  // Of each row's weights, by a thread.
  KITTENS_DEVICE void leave_reciprocals() {
    const int row = arch::thread_id();
    if (row >= kBlock) return;
    float window = 0, total = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto [largest, sum] = shared.of_window[row][i];
      window += sum * arch::exp2_approx(largest - window_maximum(row));
    }
#pragma unroll
    for (int i = 0; i < Config::slices; ++i) total += shared.linear[i].data[row];
    total = fmaf(arch::load_global(p.beta + stream.head), window, total);
    shared.reciprocals.data[row] = arch::reciprocal_approx(total);
  }

  KITTENS_DEVICE void store_outputs(scores& y, int step) {
    typename scores::row_vec reciprocals;
    load(reciprocals, shared.reciprocals);
    mul_col(y, y, reciprocals);
    values rounded;
    copy(rounded, y);
    rt<T, kBlock, 16> rows;
    transpose(rows, rounded);
    const int64_t stride = int64_t{p.heads} * p.value_dim;
    const int first = (stream.begin + step) * kBlock;
    store_rows(shared.places.y + first * stride + first_value(), stride, p.length - first,
               p.value_dim - first_value(), rows);
  }

  // ---- The state in memory ----------------------------------------------------------------------

  KITTENS_DEVICE int64_t head() const { return int64_t{stream.batch} * p.heads + stream.head; }
  KITTENS_DEVICE int64_t head_of_part(int part) const {
    return int64_t{part} * p.batch * p.heads + head();
  }
  // f(this lane's element of the state, where it is in a head's), of those that there are.
  template <class F>
  KITTENS_DEVICE void for_each_element(F f) {
    using tile = rt_fl<16, kWidth>;
    const int lane = arch::lane_id();
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) {
      const int value = first_value() + tile::across(0, i / 2 % 4, lane);
      const int feature = tile::along(i / 8, i / 2 % 4, lane) + i % 2;
      if (value < p.value_dim) f(state.data[0][i], feature * p.value_dim + value);
    }
  }

  // The state before the segment: the initial one and what the parts of those before it add.
  KITTENS_DEVICE void load_state() {
    zero(state);
    if constexpr (Config::outputs) {
      const auto enter = [&](const float* kv, const float* sum, int64_t of) {
        const float* const from = kv + of * kWidth * p.value_dim;
        for_each_element([&](float& x, int at) { x += arch::load_global(from + at); });
        sums.add(sum + of * kWidth);
      };
      if (p.initial_kv != nullptr) enter(p.initial_kv, p.initial_sum, head());
      const int parts = stream.index * p.parts;
#pragma unroll 1
      for (int i = p.passed && parts > 0 ? parts - 1 : 0; i < parts; ++i) {
        enter(p.part_kv, p.part_sum, head_of_part(i));
      }
      sums.publish(shared.sums);
    }
  }
  KITTENS_DEVICE void store_state() {
    float* kv = p.part_kv;
    float* sum = p.part_sum;
    int64_t of = head_of_part(stream.index);
    if constexpr (Config::outputs) {
      if (p.final_kv == nullptr || stream.index != p.segments - 1) return;
      kv = p.final_kv;
      sum = p.final_sum;
      of = head();
    }
    float* const to = kv + of * kWidth * p.value_dim;
    for_each_element([&](float& x, int at) { arch::store_global(to + at, x); });
    sums.publish(shared.sums);
    meet();
    const int feature = arch::thread_id();
    if (feature >= kWidth) return;
    float total = 0;
#pragma unroll
    for (int part = 0; part < 4; ++part) total += shared.sums[part].data[feature];
    arch::store_global(sum + of * kWidth + feature, total);
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1) hedgehog_attention_generic(
    const __grid_constant__ hedgehog_generic_arguments<typename Config::type> p) {
  auto& s = *reinterpret_cast<hedgehog_attention_generic_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    s.stream = block_stream::of<Config>(p);
    s.places.set(p, s.stream);
  }
  arch::sync_block();
  hedgehog_generic_block<Config>(p, s).compute();
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
