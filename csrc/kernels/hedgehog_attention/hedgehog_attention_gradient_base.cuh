// hedgehog attention: what a warpgroup of the backward has from memory and puts there, and what it
// tells the other. (hedgehog_attention_gradient.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_gradient_rows.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config, int W>
class gradient_base : protected gradient_rows<Config, W> {
  using base = gradient_rows<Config, W>;

 public:
  using base::base;

 protected:
  using base::block_of, base::p, base::run, base::shared;
  using typename base::scores;

  KITTENS_DEVICE bool signals() const { return arch::thread_id() % 128 == 0; }
  KITTENS_DEVICE bool brings() const { return W == 0 && arch::thread_id() == 0; }

  // ---- Tiles that come and go -------------------------------------------------------------------

  KITTENS_DEVICE void request_map() {
    expect_bytes(shared.map_full, tma::bytes<typename Config::map_tile>);
    tma::load_async(shared.map, p.map, shared.map_full, {.d = run.head});
  }
  // What a step needs, in two parts, since nobody reads what they replace from the middle of the
  // step before on; and from its end on.
  KITTENS_DEVICE void request_early(int step) {
    if (step >= run.count) return;
    if constexpr (Config::is_queries) {
      request_window(shared.window_values, p.window_values, shared.window_values_full, step);
      request_state(step);
    } else {
      request_row_values(step);
    }
  }
  KITTENS_DEVICE void request_late(int step) {
    if (step >= run.count) return;
    request_rows(step);
    if constexpr (Config::is_queries) request_row_values(step);
    if constexpr (!Config::is_states) {
      request_window(shared.window, p.window, shared.window_full, step);
    }
    if constexpr (Config::is_keys) {
      request_window(shared.window_values, p.window_values, shared.window_values_full, step);
      request_state(step);
    }
  }
  KITTENS_DEVICE void request_rows(int step) {
    if (step < run.count) request_tile(shared.rows, p.rows, shared.rows_full, block_of(step));
  }
  KITTENS_DEVICE void request_row_values(int step) {
    if (step >= run.count) return;
    request_tile(shared.row_values, p.row_values, shared.row_values_full, block_of(step));
  }
  // Where a block of a step's window is: each block stays for two steps.
  KITTENS_DEVICE int slot(int step, int i) const {
    return (block_of(step) + Config::first_of_window + i) & 1;
  }
  // Where this warpgroup's features of a state go out by.
  KITTENS_DEVICE typename Config::state_tile& state_going_out() {
    using tile = typename Config::state_tile;
    static_assert(sizeof(shared.features) == sizeof(tile));
    return W == 0 ? reinterpret_cast<tile&>(shared.features)
                  : reinterpret_cast<tile&>(shared.d_logits);
  }
  KITTENS_DEVICE void store_state(int b) {
    if (!signals()) return;
    tma::store_async(p.states, state_going_out(), {.d = this->head(), .r = 2 * b + W});
    tma::store_commit_group();
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
  KITTENS_DEVICE void request_tile(Tile& tile, const Map& map, semaphore& full, int block) {
    expect_bytes(full, tma::bytes<Tile>);
    tma::load_async(tile, map, full, sequence_origin::of(run.batch), block * kBlock, run.head);
  }
  // The second block of the window; before the first step the first one too.
  template <class Tile, class Map>
  KITTENS_DEVICE void request_window(Tile (&tiles)[2], const Map& map, semaphore& full, int step) {
    const int first = step == 0 ? 0 : 1;
    expect_bytes(full, (2 - first) * tma::bytes<Tile>);
    for (int i = first; i < 2; ++i) {
      tma::load_async(tiles[slot(step, i)], map, full, sequence_origin::of(run.batch),
                      (block_of(step) + Config::first_of_window + i) * kBlock, run.head);
    }
  }
  KITTENS_DEVICE void request_state(int step) {
    const int b = block_of(step) + (Config::is_keys ? 2 : 0);
    expect_bytes(shared.state_full, 2 * tma::bytes<typename Config::state_tile>);
    for (int i = 0; i < 2; ++i) {
      tma::load_async(shared.state[i], p.states, shared.state_full,
                      {.d = this->head(), .r = 2 * b + i});
    }
  }
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
