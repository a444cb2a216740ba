// hedgehog attention: what a warpgroup of the backward has from memory and puts there, the state
// that goes along, and where it meets others. (hedgehog_attention_gradient.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_gradient_rows.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

// The values of which a warpgroup has the state.
template <int First, int Count>
struct value_columns {
  static constexpr int first = First, count = Count;
};
using all_values = value_columns<0, kWidth>;
template <int Half>
using half_of_values = value_columns<Half * kHalf, kHalf>;

template <class Config, class Values>
class gradient_base : protected gradient_rows<Config, any_warpgroup> {
  using base = gradient_rows<Config, any_warpgroup>;

 public:
  using base::base;

 protected:
  using base::W, base::p, base::run, base::shared, base::kOwn, base::kAll, base::kStateScale;
  using typename base::T, typename base::rows, typename base::scores;
  // [features of softmax W, Values]; of queries times kStateScale
  rt_fl<16, Values::count> state;

  KITTENS_DEVICE bool signals() const { return arch::thread_id() % 128 == 0; }
  KITTENS_DEVICE bool brings() const { return W == 0 && signals(); }
  KITTENS_DEVICE void meet_own() const { warpgroup::sync(kOwn + warpgroupid()); }

  // Named barriers beside `meet`, where all warpgroups are. At the last four some only arrive.
  enum barrier {
    kAtScores = kAll + 1,  // the window's warpgroups
    kAtLogits,             // those of features
    kAtOperands,           // features' arrive, the window's wait: gradients of logits are there
    kAtTiles,              // likewise: rows, window and gradients of logits have been read
    kAtEntering,           // + W, likewise: features of what enters are there
    kAtState = kAtEntering + 2,  // the window's arrive, features' wait: the state is there
  };
  KITTENS_DEVICE static void meet_half(int at) {
    arch::named_barrier_sync(at, Config::threads / 2);
  }
  KITTENS_DEVICE static void await(int at) { arch::named_barrier_sync(at, Config::threads); }
  KITTENS_DEVICE static void arrive(int at) { arch::named_barrier_arrive(at, Config::threads); }
  KITTENS_DEVICE void await_entering() const { meet_half(kAtEntering + W); }
  KITTENS_DEVICE void arrive_entering() const {
    arch::named_barrier_arrive(kAtEntering + W, Config::threads / 2);
  }

  // Queries go forward, with the keys' state; keys go back, with the queries'.
  KITTENS_DEVICE int block_of(int step) const {
    return run.begin + (Config::is_queries ? step : run.count - 1 - step);
  }
  // Of the window, the block that is not in that of the step before; and the other one, which
  // enters the state behind the step.
  static constexpr int kNew = Config::is_queries ? 1 : 0;
  static constexpr int kOld = 1 - kNew;
  KITTENS_DEVICE int entering_block(int step) const {
    return block_of(step) + Config::first_of_window + kOld;
  }
  KITTENS_DEVICE int entering_slot(int step) const { return slot(step, kOld); }
  // Where a block of a step's window is: each block stays for two steps.
  KITTENS_DEVICE int slot(int step, int i) const {
    return (block_of(step) + Config::first_of_window + i) & 1;
  }

  // ---- Tiles that come and go -------------------------------------------------------------------

  KITTENS_DEVICE void request_maps() {
    constexpr int kMaps = Config::outputs ? 2 : 1;
    expect_bytes(shared.map_full, kMaps * tma::bytes<typename Config::map_tile>);
    tma::load_async(shared.window_map, p.window_map, shared.map_full, {.d = run.head});
    if constexpr (Config::outputs) {
      tma::load_async(shared.map, p.map, shared.map_full, {.d = run.head});
    }
  }
  KITTENS_DEVICE void request_rows(int step) {
    if (step < run.count) request_tile(shared.rows, p.rows, shared.rows_full, step);
  }
  KITTENS_DEVICE void request_row_values(int step) {
    if (step >= run.count) return;
    request_tile(shared.row_values, p.row_values, shared.row_values_full, step);
  }
  // The window's new block; before the first step both. What lies before the sequence and behind it
  // are zeros.
  KITTENS_DEVICE void request_window(int step) {
    request_blocks(shared.window, p.window, shared.window_full, step);
  }
  KITTENS_DEVICE void request_window_values(int step) {
    request_blocks(shared.window_values, p.window_values, shared.window_values_full, step);
  }
  KITTENS_DEVICE void store_gradients(int step) {
    if (!signals()) return;
    const sequence_origin origin = sequence_origin::of(run.batch);
    const int token = block_of(step) * kBlock, column = W * kHalf;
    if (p.wants_row_gradients) {
      tma::store_async(p.row_gradients, shared.d_scores[W], origin, token, run.head, column);
    }
    if constexpr (Config::is_keys) {
      if (p.wants_value_gradients) {
        tma::store_async(p.value_gradients, shared.weights[W], origin, token, run.head, column);
      }
    }
    tma::store_commit_group();
  }

  // ---- The state --------------------------------------------------------------------------------

  // Asks for the logits of the block that enters.
  KITTENS_DEVICE void multiply_entering(logits& x, int slot) {
    warpgroup::mma_fence(x);
    warpgroup::mm_AB(x, shared.window[slot], shared.window_map);
    warpgroup::mma_commit_group();
  }
  // x, those logits, becomes what their block's values are multiplied by. The columns' sums are
  // there after a barrier.
  KITTENS_DEVICE void soften_entering(logits& x, int block, const float2 (&factors)[2]) {
    rows scale;
    if constexpr (Config::is_queries) {
      fill(scale, block < 0 ? 0.0f : 1.0f);
      this->soften(x, scale);
      this->add_up_columns(x);
    } else {
      const float alpha = arch::load_global(p.alpha + run.head);
      float of_sums[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto [r, delta] = factors[half];
        scale.data[half].set({kStateScale * alpha * r});
        of_sums[half] = -1 / kStateScale * delta;
      }
      this->soften(x, scale);
      this->add_up_columns(x, of_sums);
    }
  }
  // Asks for state += features of W · values.
  KITTENS_DEVICE void multiply_into_state(int slot) {
    warpgroup::mma_fence(state);
    const auto& values = shared.window_values[slot];
    if constexpr (Values::count == kWidth) {
      warpgroup::mma_AtB(state, shared.features[W], values);
    } else {
      warpgroup::mma_AtB(state, shared.features[W], this->half_of(values, Values::first / kHalf));
    }
    warpgroup::mma_commit_group();
  }
  KITTENS_DEVICE void add_to_state_sums() {
    const int column = warpgroup::laneid();
    if (column < kHalf) shared.state_sums[W].data[column] += this->column_sum(column);
  }
  // For the next step's products: there after a barrier.
  KITTENS_DEVICE void publish_state() {
    auto& tile = shared.state[Values::first / kHalf][W];
    if constexpr (Config::is_queries) {
      warpgroup::store(tile, state);
    } else {
      rt_fl<16, Values::count> unscaled;
      mul(unscaled, state, 1 / kStateScale);
      warpgroup::store(tile, unscaled);
    }
  }

  static constexpr bool kHasSums = Values::first == 0;
  // The state that a run begins with: what the parts of the runs before it add, or of keys of those
  // behind it.
  KITTENS_DEVICE void load_state() {
    zero(state);
    const int column = warpgroup::laneid();
    float sum = 0;  // of features; one of the warpgroups that have a state has them
    if constexpr (Config::outputs) {
      const int parts = (Config::is_queries ? run.index : p.runs - 1 - run.index) * p.parts;
#pragma unroll 1
      for (int i = p.passed && parts > 0 ? parts - 1 : 0; i < parts; ++i) {
        const int part = Config::is_queries ? i : (p.runs - 1) * p.parts - 1 - i;
        add_pieces(state, state_of(part));
        if (kHasSums && column < kHalf) sum += arch::load_global(part_sums(part) + column);
      }
      publish_state();
    }
    if (kHasSums && column < kHalf) shared.state_sums[W].data[column] = sum;
  }
  // What a part adds.
  KITTENS_DEVICE void store_state() {
    store_pieces(state_of(run.index), state);
    const int column = warpgroup::laneid();
    if (column < kHalf) {
      arch::store_global(part_sums(run.index) + column, shared.state_sums[W].data[column]);
    }
  }

  // ---- Products of either pass ------------------------------------------------------------------

  // Queries times keys, which are rows or window.
  template <class Tile>
  KITTENS_DEVICE static void multiply_by_keys(scores& s, const Tile& of_rows, const Tile& window) {
    if constexpr (Config::is_queries) {
      warpgroup::mm_ABt(s, of_rows, window);
    } else {
      warpgroup::mm_ABt(s, window, of_rows);
    }
  }
  // The rows' sums over both blocks of the window, of which they have half the columns.
  template <class Square, class Tile>
  KITTENS_DEVICE void multiply_window(rt_fl<16, kHalf>& sum, const Square (&factors)[2],
                                      const Tile (&window)[2], int step) const {
    const auto& first = this->half_of(window[slot(step, 0)], W);
    const auto& second = this->half_of(window[slot(step, 1)], W);
    if constexpr (Config::is_queries) {
      warpgroup::mm_AB(sum, factors[0], first);
      warpgroup::mma_AB(sum, factors[1], second);
    } else {
      warpgroup::mm_AtB(sum, factors[0], first);
      warpgroup::mma_AtB(sum, factors[1], second);
    }
  }

 private:
  template <class Tile, class Map>
  KITTENS_DEVICE void request_tile(Tile& tile, const Map& map, semaphore& full, int step) {
    expect_bytes(full, tma::bytes<Tile>);
    tma::load_async(tile, map, full, sequence_origin::of(run.batch), block_of(step) * kBlock,
                    run.head);
  }
  template <class Tile, class Map>
  KITTENS_DEVICE void request_blocks(Tile (&tiles)[2], const Map& map, semaphore& full, int step) {
    if (step >= run.count) return;
    const bool both = step == 0;
    expect_bytes(full, (both ? 2 : 1) * tma::bytes<Tile>);
    for (int i = 0; i < 2; ++i) {
      if (i != kNew && !both) continue;
      tma::load_async(tiles[slot(step, i)], map, full, sequence_origin::of(run.batch),
                      (block_of(step) + Config::first_of_window + i) * kBlock, run.head);
    }
  }
  KITTENS_DEVICE int64_t state_index(int part) const {
    return int64_t{part} * p.batch * p.heads + this->head();
  }
  KITTENS_DEVICE float4* state_of(int part) const {
    constexpr int kPieces = kWidth / 8;
    const int64_t first = (state_index(part) * 2 + W) * kPieces + Values::first / 8;
    return p.part_states + first * 128 + warpgroup::laneid();
  }
  KITTENS_DEVICE float* part_sums(int part) const {
    return p.state_sums + state_index(part) * kWidth + W * kHalf;
  }
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
