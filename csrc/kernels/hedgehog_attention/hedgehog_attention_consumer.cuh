// hedgehog attention: a consumer. One of the two warpgroups, W, has every other block of queries,
// and the features of one of the softmaxes of the state. (hedgehog_attention_forward.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_features.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config, int W>
class hedgehog_consumer {
 public:
  KITTENS_DEVICE hedgehog_consumer(const hedgehog_arguments<Config>& p,
                                   hedgehog_attention_forward_shared<Config>& shared)
      : p(p), shared(shared), stream(shared.stream) {}

  KITTENS_DEVICE void consume() {
    if (brings()) {
      request_maps();
      if (Config::outputs) request_queries(0);
      for (int block = 0; block < kStages; ++block) request(shared.k, p.k, shared.k_full, block);
      for (int block = 0; block < kStages; ++block) request(shared.v, p.v, shared.v_full, block);
    }
    load_state();
    wait(shared.maps_full, 0);
#pragma unroll 1
    for (int step = 0; step < stream.steps; ++step) {
      if constexpr (Config::outputs) {
        attend(step);
      } else {
        add_to_state(step);
      }
    }
    store_state();
    if (Config::outputs && signals()) tma::store_async_read_wait<0>();
  }

 private:
  using T = typename Config::type;
  using scores = rt_fl<16, kBlock>;
  using rows = scores::col_vec;       // a value for each of a warp's rows
  using weights = rt<T, 16, kBlock>;  // of keys, or features: the left side of a product
  using outputs = rt_fl<16, Config::columns>;
  static constexpr int kOwn = 1;  // barriers: of each warpgroup, and of both
  static constexpr int kAll = kOwn + kConsumers;
  const hedgehog_arguments<Config>& p;
  hedgehog_attention_forward_shared<Config>& shared;
  const block_stream& stream;  // in shared memory: registers are what there is too little of
  outputs state;               // [features of softmax W, values]
  feature_sums<T> sums;        // of this warpgroup's blocks of keys

  KITTENS_DEVICE bool signals() const { return arch::thread_id() % 128 == 0; }
  KITTENS_DEVICE bool brings() const { return W == 0 && arch::thread_id() == 0; }
  KITTENS_DEVICE void meet() const { arch::named_barrier_sync(kAll, kThreads); }
  KITTENS_DEVICE int block_of(int step) const { return stream.begin + 2 * step; }

  KITTENS_DEVICE void request_maps() {
    expect_bytes(shared.maps_full,
                 (Config::outputs ? 2 : 1) * tma::bytes<typename Config::map_tile>);
    tma::load_async(shared.k_map, p.k_map, shared.maps_full, {.d = stream.head});
    if constexpr (Config::outputs) {
      tma::load_async(shared.q_map, p.q_map, shared.maps_full, {.d = stream.head});
    }
  }
  KITTENS_DEVICE void request_queries(int step) {
    if (step >= stream.steps) return;
    for (int w = 0; w < kConsumers; ++w) {
      expect_bytes(shared.q_full[w], tma::bytes<typename Config::token_tile>);
      tma::load_async(shared.q[w], p.q, shared.q_full[w], sequence_origin::of(stream.batch),
                      (block_of(step) + w) * kBlock, stream.head);
    }
  }
  // Has a block of keys brought, counted from the first; no product is reading what it replaces.
  // What lies before the sequence and behind it are zeros.
  template <class Map>
  KITTENS_DEVICE void request(typename Config::token_tile (&tiles)[kStages], const Map& map,
                              semaphore (&full)[kStages], int block) {
    if (block >= 2 * stream.steps + (Config::outputs ? 1 : 0)) return;
    const int stage = block % kStages;
    expect_bytes(full[stage], tma::bytes<typename Config::token_tile>);
    tma::load_async(tiles[stage], map, full[stage], sequence_origin::of(stream.batch),
                    (stream.begin + block) * kBlock - p.missing, stream.head);
  }
  // The two blocks of the step after `step` that are not there yet.
  template <class Map>
  KITTENS_DEVICE void request_next(typename Config::token_tile (&tiles)[kStages], const Map& map,
                                   semaphore (&full)[kStages], int step) {
    request(tiles, map, full, 2 * step + kStages);
    request(tiles, map, full, 2 * step + kStages + 1);
  }
  // Where one of the step's three blocks of keys is, and the wait for it.
  KITTENS_DEVICE static int stage(int step, int i) { return (2 * step + i) % kStages; }
  KITTENS_DEVICE static void wait_full(semaphore (&full)[kStages], int step, int i) {
    wait(full[stage(step, i)], (2 * step + i) / kStages % 2);
  }

  // ---- What enters the state --------------------------------------------------------------------

  // Asks for the logits of the block of keys that is this warpgroup's.
  KITTENS_DEVICE void multiply_by_map(logits& x, int step) {
    wait_full(shared.k_full, step, W);
    warpgroup::mma_fence(x);
    warpgroup::mm_AB(x, shared.k[stage(step, W)], shared.k_map);
    warpgroup::mma_commit_group();
  }
  // Its features; 0 of what does not exist, and of the last 64 tokens, which stay in the window.
  KITTENS_DEVICE void store_features(const logits& x, int step) {
    rows exists;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row =
          (block_of(step) + W) * kBlock + arch::warp_id() % 4 * 16 + half * 8 + arch::lane_id() / 4;
      exists.data[half].set({row >= stream.first_row && row < p.length ? 1.0f : 0.0f});
    }
    weights f;
    softmax_features<1>(f, x, exists);
    warpgroup::store_unfenced(shared.features[W][0], f);
    softmax_features<-1>(f, x, exists);
    warpgroup::store(shared.features[W][1], f);
  }
  // Asks for state += φ(k)ᵀ v of both blocks.
  KITTENS_DEVICE void multiply_features_by_values(int step) {
    wait_full(shared.v_full, step, 0);
    wait_full(shared.v_full, step, 1);
    warpgroup::mma_fence(state);
    warpgroup::mma_AtB(state, shared.features[0][W], shared.v[stage(step, 0)]);
    warpgroup::mma_AtB(state, shared.features[1][W], shared.v[stage(step, 1)]);
    warpgroup::mma_commit_group();
  }

  // A step without outputs.
  KITTENS_DEVICE void add_to_state(int step) {
    logits x;
    multiply_by_map(x, step);
    warpgroup::mma_async_wait<0>(x);
    store_features(x, step);
    meet();  // the features are there, and the keys have been read
    if (brings()) request_next(shared.k, p.k, shared.k_full, step);
    multiply_features_by_values(step);
    sums.add(shared.features[W]);
    warpgroup::mma_async_wait<0>(state);
    meet();  // features and values have been read
    if (brings()) request_next(shared.v, p.v, shared.v_full, step);
  }

  // ---- Outputs ----------------------------------------------------------------------------------

  // A step: this warpgroup's block of queries, and what enters the state.
  KITTENS_DEVICE void attend(int step) {
    logits x_of_keys, x;
    multiply_by_map(x_of_keys, step);
    wait(shared.q_full[W], step % 2);
    warpgroup::mma_fence(x);
    warpgroup::mm_AB(x, shared.q[W], shared.q_map);
    warpgroup::mma_commit_group();
    if (signals()) tma::store_async_read_wait<0>();
    warpgroup::mma_async_wait<1>(x_of_keys);
    warpgroup::sync(kOwn + W);  // what was stored last has left the features' memory
    store_features(x_of_keys, step);

    scores previous, own;  // of the window's two blocks of keys
    wait_full(shared.k_full, step, W + 1);
    warpgroup::mma_fence(previous, own);
    warpgroup::mm_ABt(previous, shared.q[W], shared.k[stage(step, W)]);
    warpgroup::mm_ABt(own, shared.q[W], shared.k[stage(step, W + 1)]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<1>(x);
    weights features[2];  // of the queries, times alpha
    {
      rows alpha;
      fill(alpha, arch::load_global(p.alpha + stream.head));
      softmax_features<1>(features[0], x, alpha);
      softmax_features<-1>(features[1], x, alpha);
    }
    warpgroup::mma_async_wait<0>(previous, own);
    meet();  // features, state and sums are there; queries and keys have been read
    if (brings()) {
      request_queries(step + 1);
      request_next(shared.k, p.k, shared.k_full, step);
    }

    multiply_features_by_values(step);
    rows total;
    zero(total);
    add_linear_sums(total, features);
    scores linear;  // weights of the block of keys between state and window
    if constexpr (W == 1) {
      warpgroup::mma_fence(linear);
      warpgroup::mm_ABt(linear, features[0], shared.features[0][0]);
      warpgroup::mma_ABt(linear, features[1], shared.features[0][1]);
      warpgroup::mma_commit_group();
    }
    mask(previous, own, step);
    const rows reference = largest_scores(previous, own);
    const weights of_previous = soften(previous, reference, total);
    const weights of_own = soften(own, reference, total);
    weights between;
    if constexpr (W == 1) {
      warpgroup::mma_async_wait<0>(linear, state);
      partial_row_sum(total, linear, total);
      copy(between, linear);
      wait_full(shared.v_full, step, 2);
    }

    outputs y;
    warpgroup::mma_fence(y);
    warpgroup::mm_AB(y, features[0], shared.state[0]);
    warpgroup::mma_AB(y, features[1], shared.state[1]);
    warpgroup::mma_AB(y, of_previous, shared.v[stage(step, W)]);
    warpgroup::mma_AB(y, of_own, shared.v[stage(step, W + 1)]);
    if constexpr (W == 1) warpgroup::mma_AB(y, between, shared.v[stage(step, 0)]);
    warpgroup::mma_commit_group();
    sums.add(shared.features[W]);
    finish_row_sum(total);
    warpgroup::mma_async_wait<0>(y, state);
    meet();  // features, state, sums and values have been read
    if (brings()) request_next(shared.v, p.v, shared.v_full, step);
    publish_state();
    map([](float x) { return arch::reciprocal_approx(x); }, total, total);
    mul_row(y, y, total);
    store_outputs(y, step);
  }

  // total += φ(q) · Σ φ(k), what the state's weights add up to.
  KITTENS_DEVICE void add_linear_sums(rows& total, const weights (&features)[2]) {
#pragma unroll
    for (int softmax = 0; softmax < 2; ++softmax) {
      scores::row_vec even, odd;
      load(even, shared.sums[0][softmax]);
      load(odd, shared.sums[1][softmax]);
      add(even, even, odd);
      scores f;
      copy(f, features[softmax]);
      mul_col(f, f, even);
      partial_row_sum(total, f, total);
    }
  }

  // −∞ for keys that come later, or do not exist.
  KITTENS_DEVICE void mask(scores& previous, scores& own, int step) {
    warpgroup::tril(own, own, 0, -INFINITY);
    if (block_of(step) + W == 0) left_fill(previous, previous, stream.first_row, -INFINITY);
  }
  // Of each row, to log₂.
  KITTENS_DEVICE rows largest_scores(const scores& previous, const scores& own) {
    rows largest;
    row_max(largest, previous);
    row_max(largest, own, largest);
    mul(largest, largest, p.score_scale);
    return largest;
  }
  // The weights of scores, which are added to `total` too.
  KITTENS_DEVICE weights soften(scores& s, const rows& reference, rows& total) {
    const float scale = p.score_scale, beta = arch::load_global(p.beta + stream.head);
    map_rows([&](float x, float m) { return beta * arch::exp2_approx(fmaf(x, scale, -m)); }, s, s,
             reference);
    partial_row_sum(total, s, total);
    weights w;
    copy(w, s);
    return w;
  }

  KITTENS_DEVICE void store_outputs(const outputs& y, int step) {
    using tile = typename Config::token_tile;
    static_assert(sizeof(shared.features[W]) >= sizeof(tile));
    tile& memory = reinterpret_cast<tile&>(shared.features[W]);
    warpgroup::store(memory, y);
    warpgroup::sync(kOwn + W);
    if (!signals()) return;
    tma::store_async(p.y, memory, sequence_origin::of(stream.batch), (block_of(step) + W) * kBlock,
                     stream.head);
    tma::store_commit_group();
  }

  // ---- The state in memory ----------------------------------------------------------------------

  // For the next step's products: there when the warpgroups have met.
  KITTENS_DEVICE void publish_state() {
    warpgroup::store(shared.state[W], state);
    sums.publish(shared.sums[W]);
  }

  KITTENS_DEVICE int64_t head() const { return int64_t{stream.batch} * p.heads + stream.head; }
  KITTENS_DEVICE int64_t head_of_part(int part) const {
    return int64_t{part} * p.batch * p.heads + head();
  }
  // What this thread has of a part's state.
  KITTENS_DEVICE float4* pieces_of(int part) const {
    return reinterpret_cast<float4*>(p.part_kv) +
           (head_of_part(part) * kConsumers + W) * (Config::columns / 8 * 128) +
           warpgroup::laneid();
  }
  // This warpgroup's features of a head's state, where it is the caller's.
  template <class F>
  KITTENS_DEVICE gl<F> given(F* kv) const {
    F* const from = kv + (head() * kWidth + W * kHalf) * p.value_dim;
    return gl<F>::matrix(from, kHalf, p.value_dim, p.value_dim);
  }

  // The state before the segment: the initial one and what the parts of those before it add.
  KITTENS_DEVICE void load_state() {
    zero(state);
    if constexpr (Config::outputs) {
      if (p.initial_kv != nullptr) {
        warpgroup::load(state, given(p.initial_kv));
        if constexpr (W == 0) sums.add(p.initial_sum + head() * kWidth);
      }
      const int parts = stream.index * p.parts;
#pragma unroll 1
      for (int i = p.passed && parts > 0 ? parts - 1 : 0; i < parts; ++i) {
        add_pieces(state, pieces_of(i));
        if constexpr (W == 0) sums.add(p.part_sum + head_of_part(i) * kWidth);
      }
      publish_state();
    }
  }
  KITTENS_DEVICE void store_state() {
    if constexpr (Config::outputs) {
      if (p.final_kv == nullptr || stream.index != p.segments - 1) return;
      warpgroup::store(given(p.final_kv), state);
      store_sums(p.final_sum + head() * kWidth);
    } else {
      store_pieces(pieces_of(stream.index), state);
      store_sums(p.part_sum + head_of_part(stream.index) * kWidth);
    }
  }
  KITTENS_DEVICE void store_sums(float* to) const {
    sums.publish(shared.sums[W]);
    meet();
    if constexpr (W == 0) {
      const int feature = warpgroup::laneid();
      const auto sum = [&](int w) { return shared.sums[w][feature / kHalf].data[feature % kHalf]; };
      arch::store_global(to + feature, sum(0) + sum(1));
    }
  }
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
