// hedgehog attention, backward, for every architecture since sm_80: the function of
// hedgehog_attention_gradient.cuh, by mma.sync, ldmatrix and cp.async.
//
// What is computed of scores and logits is the same code (hedgehog_attention_gradient_rows.cuh), by
// the same two warpgroups. What differs is shared memory, 99 KiB of six tiles, where Hopper's
// kernel has up to 13: what a block of tokens needs comes one after the other.
//
//   queries   tiles 2, 3       tiles 4, 5           keys   tile 1    tiles 2, 3     tiles 4, 5
//             keys             values → scores             values    queries        states
//                              states → dy · S                                      dy → weights
//                              map → features              weights → dv             map, d_scores
//                              d_scores → dq               features  states → dv    d_logits
//             d_logits, features → dq, d map                              → dk, d map
//
// Tile 0 has the rows throughout, and tile 1 dy of queries. A block's first tiles are asked for
// while the results of the one before leave, which they do from registers.
//
// Blocks are independent of each other but for the states, which are kept for each of them, in 16
// bits. Slot b of a head is of query block b, whose state has the key blocks to b − 2:
//
//   states      φ(k) of block j, and what it adds to the state: into slot j + 2
//   add up      slot b += slot b − 1, forwards
//   queries     dq of block b, from k and v of blocks b − 1 and b, and slot b, where it leaves what
//               it adds to dS; factors of its rows
//   add up      slot b += slot b + 1, backwards
//   keys        dk, dv of block j, from q and dy of blocks j and j + 1, and slot j + 2
//   finish      as Hopper's
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_gradient_rows.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config, int W>
class generic_gradient_walk : gradient_rows<Config, known_warpgroup<W>> {
  using base = gradient_rows<Config, known_warpgroup<W>>;
  using base::block_of, base::half_of, base::p, base::run, base::shared;
  using typename base::scores;

 public:
  using base::base;

  KITTENS_DEVICE void consume() {
    if (run.count <= 0) return;
    if constexpr (Config::is_states) request_map(shared.map);
    request_first(0);
    zero(d_map);
#pragma unroll 1
    for (int step = 0; step < run.count; ++step) {
      await();
      if constexpr (Config::is_states) {
        find_state(step);
      } else if constexpr (Config::is_queries) {
        differentiate_block_of_queries(step);
      } else {
        differentiate_block_of_keys(step);
      }
    }
    if constexpr (!Config::is_states) {
      warpgroup::store(p.map_parts + (this->part() * 2 + W) * kBlock * kHalf, d_map, kHalf);
    }
    if constexpr (Config::is_queries && W == 0) this->store_weight_part();
  }

 private:
  using T = typename Config::type;
  using token_tile = typename Config::token_tile;
  using map_tile = typename Config::map_tile;
  using state_tile = typename Config::state_tile;
  using square = typename Config::square;
  using base::kStateScale;
  rt_fl<16, kHalf> d_map;  // rows 64 W … of the map's gradient

  // ---- Tiles that come and go -------------------------------------------------------------------

  // A tile of another shape, or two squares, where one of tokens was.
  template <class Tile>
  KITTENS_DEVICE static Tile& in_place_of(token_tile& tile) {
    static_assert(sizeof(Tile) == sizeof(token_tile));
    return reinterpret_cast<Tile&>(tile);
  }
  using squares = square[2];

  // All copies are there, and all have met.
  KITTENS_DEVICE void await() const {
    load_async_wait<0>();
    this->meet();
  }
  KITTENS_DEVICE void request(token_tile& tile, const T* head, const token_rows<T>& of,
                              int block) const {
    request_rows<kThreads>(tile, head, of.strides.token, of.columns, block * kBlock, 0, p.length);
  }
  KITTENS_DEVICE void request_window(token_tile (&tiles)[2], const T* head, const token_rows<T>& of,
                                     int step) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      request(tiles[i], head, of, block_of(step) + Config::first_of_window + i);
    }
  }
  // Of a block; zeros behind the last one.
  KITTENS_DEVICE void request_state(token_tile (&tiles)[2], int b) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      request_rows<kThreads>(in_place_of<state_tile>(tiles[i]), shared.places.states, kWidth,
                             kWidth, b * kWidth + i * kHalf, 0, p.blocks * kWidth);
    }
    load_async_commit();
  }
  KITTENS_DEVICE void request_map(map_tile& tile) const {
    request_rows<kThreads>(tile, shared.places.map, kHalf, kHalf, 0, 0, p.head_dim);
    load_async_commit();
  }
  // What a step begins with.
  KITTENS_DEVICE void request_first(int step) const {
    if (step >= run.count) return;
    const auto& from = shared.places;
    request(shared.rows, from.rows, p.rows, block_of(step));
    request(shared.row_values, from.row_values, p.row_values, block_of(step));
    if constexpr (!Config::is_states) {
      request_window(shared.window, from.window, p.window, step);
    }
    if constexpr (Config::is_queries) {
      request_window(shared.others, from.window_values, p.window_values, step);
    }
    if constexpr (Config::is_keys) request_state(shared.others, block_of(step) + 2);
    load_async_commit();
  }

  // This warp's rows of a tile of tokens, from column `column` on, of a tensor with `columns`.
  template <int Columns>
  KITTENS_DEVICE void store_tokens(T* to, int columns, int step, int column,
                                   const rt_fl<16, Columns>& values) const {
    if (to == nullptr) return;
    rt<T, 16, Columns> rounded;
    copy(rounded, values);
    const int64_t stride = int64_t{p.heads} * columns;
    const int token = block_of(step) * kBlock + warp_row();
    store_rows(to + token * stride + column, stride, p.length - token, columns - column, rounded);
  }
  // This warp's features of what a block adds to the state, into slot b.
  KITTENS_DEVICE void store_state(int b, const rt_fl<16, kWidth>& added) const {
    rt<T, 16, kWidth> rounded;
    copy(rounded, added);
    const int64_t row = int64_t{b} * kWidth + W * kHalf + warp_row();
    store_rows(shared.places.states + row * kWidth, kWidth, 16, kWidth, rounded);
  }
  KITTENS_DEVICE static int warp_row() { return arch::warp_id() % 4 * 16; }
  template <class Tile, class Registers>
  KITTENS_DEVICE static void put(Tile& tile, const Registers& rows) {
    warpgroup::store_unfenced(tile, rows);
  }

  // ---- What keys add to the state ---------------------------------------------------------------

  KITTENS_DEVICE void find_state(int step) {
    logits x;
    zero(x);
    add_AB(x, shared.rows, shared.map);
    this->soften(x);
    this->add_up_columns(x);
    put(shared.features[W], x);
    this->meet();  // features and sums are there
    rt_fl<16, kWidth> added;
    zero(added);
    add_AtB(added, shared.features[W], shared.row_values);
    this->store_column_sums(block_of(step) + 2);
    this->meet();  // all tiles have been read
    request_first(step + 1);
    store_state(block_of(step) + 2, added);
  }

  // ---- Queries ----------------------------------------------------------------------------------

  KITTENS_DEVICE void differentiate_block_of_queries(int step) {
    logits f;
    scores s, d, g;
    zero(s);
    add_ABt(s, shared.rows, shared.window[W]);
    zero(d);
    add_ABt(d, shared.row_values, shared.others[W]);
    this->meet();  // values have been read
    request_state(shared.others, block_of(step));
    if (W == 1) warpgroup::tril(s, s, 0, -INFINITY);
    if (W == 0 && block_of(step) == 0) fill(s, -INFINITY);
    map_tile& map = in_place_of<map_tile>(shared.others[0]);
    float largest[2], count[2];
    this->weigh(s, largest, count, [&] { this->meet(); });
    await();
    zero(g);
    add_ABt(g, shared.row_values, in_place_of<state_tile>(shared.others[W]));
    this->meet();  // states have been read
    request_map(map);
    await();
    zero(f);
    add_AB(f, shared.rows, map);
    this->soften(f);
    const auto z = this->load_sums(block_of(step));
    this->add_up_weights(s, d, count);
    this->add_up_features(f, g, z);
    this->meet();  // all sums are there
    this->differentiate_weights(s, s, d, largest, step);
    this->differentiate_logits(f, g, z, step, &d);
    squares& d_scores = in_place_of<squares>(shared.others[1]);
    put(d_scores[W], s);
    this->meet();  // they are there, and what is of rows has been read
    this->add_up_columns(d);
    rt_fl<16, kHalf> d_rows;  // half of the columns
    zero(d_rows);
#pragma unroll
    for (int i = 0; i < 2; ++i) add_AB(d_rows, d_scores[i], half_of(shared.window[i], W));
    this->meet();  // the window has been read; sums of columns are there
    squares& d_logits = in_place_of<squares>(shared.window[0]);
    squares& features = in_place_of<squares>(shared.window[1]);
    put(d_logits[W], g);
    put(features[W], f);
    this->store_column_sums(block_of(step));
    this->meet();  // they are there
    add_logits(d_rows, d_logits, map);
    rt_fl<16, kWidth> added;
    zero(added);
    add_AtB(added, features[W], shared.row_values);
    this->meet();  // all tiles have been read
    request_first(step + 1);
    mul(added, added, 1 / kStateScale);
    store_state(block_of(step), added);
    store_tokens(shared.places.row_gradients, p.head_dim, step, W * kHalf, d_rows);
  }
  // The part of the logits' gradient in that of the rows and the map.
  KITTENS_DEVICE void add_logits(rt_fl<16, kHalf>& d_rows, const squares& d_logits,
                                 const map_tile& map) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      add_ABt(d_rows, d_logits[i], half_of(map, W));
      add_AtB(d_map, half_of(shared.rows, W), d_logits[i]);
    }
  }

  // ---- Keys -------------------------------------------------------------------------------------

  KITTENS_DEVICE void differentiate_block_of_keys(int step) {
    scores s, d, g;  // [queries, keys] of s and d
    zero(g);
    add_ABt(g, shared.row_values, in_place_of<state_tile>(shared.others[W]));
    this->meet();  // states have been read
    request_window(shared.others, shared.places.window_values, p.window_values, step);
    load_async_commit();
    zero(s);
    add_ABt(s, shared.window[W], shared.rows);
    if (W == 0) warpgroup::tril(s, s, 0, -INFINITY);
    float4 factors[2];
    this->load_factors(factors, block_of(step) + W);
    await();
    zero(d);
    add_ABt(d, shared.others[W], shared.row_values);
    this->weigh(s, factors);
    rt<T, 16, kBlock> shares;
    this->take_shares(shares, s, factors);
    this->differentiate_weights(s, s, d, factors);
    this->meet();  // the values have been read
    squares& weights = in_place_of<squares>(shared.row_values);
    put(weights[W], shares);
    this->meet();                       // they are there
    rt_fl<16, kHalf> d_rows, d_values;  // half of the columns
    zero(d_values);
#pragma unroll
    for (int i = 0; i < 2; ++i) add_AtB(d_values, weights[i], half_of(shared.others[i], W));
    this->meet();  // weights and dy have been read
    map_tile& map = in_place_of<map_tile>(shared.others[1]);
    request_map(map);
    squares& d_scores = in_place_of<squares>(shared.others[0]);
    put(d_scores[W], s);
    this->meet();  // they are there
    zero(d_rows);
#pragma unroll
    for (int i = 0; i < 2; ++i) add_AtB(d_rows, d_scores[i], half_of(shared.window[i], W));
    this->meet();  // they and the window have been read
    request_state(shared.window, block_of(step) + 2);
    await();
    logits f;
    zero(f);
    add_AB(f, shared.rows, map);
    this->soften(f);
    this->differentiate_features(f, g, this->load_sums(block_of(step) + 2));
    squares& d_logits = in_place_of<squares>(shared.others[0]);
    squares& features = in_place_of<squares>(shared.row_values);
    put(d_logits[W], g);
    put(features[W], f);
    this->meet();  // they are there
    add_logits(d_rows, d_logits, map);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      add_AB(d_values, features[i], half_of(in_place_of<state_tile>(shared.window[i]), W));
    }
    this->meet();  // all tiles have been read
    request_first(step + 1);
    store_tokens(shared.places.row_gradients, p.head_dim, step, W * kHalf, d_rows);
    store_tokens(shared.places.value_gradients, p.value_dim, step, W * kHalf, d_values);
  }
};

template <class Config>
__global__ void __launch_bounds__(kThreads, Config::blocks_per_multiprocessor)
    hedgehog_attention_generic_gradient(
        const __grid_constant__ hedgehog_generic_gradient_arguments<typename Config::type> p) {
  auto& s = *reinterpret_cast<hedgehog_attention_generic_gradient_shared<Config>*>(
      arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    s.run = block_run::of<Config>(p);
    s.places.set(p, s.run);
  }
  arch::sync_block();
  if (warpgroupid() == 0) {
    generic_gradient_walk<Config, 0>(p, s).consume();
  } else {
    generic_gradient_walk<Config, 1>(p, s).consume();
  }
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
