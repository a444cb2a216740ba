// based_attention on every architecture: chunks that cp.async brings, each warp its own 16 rows.
// (based_attention_generic.cuh)
#pragma once

#include "kernels/based_attention/based_attention_state.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

// Of a chunk's tile, this warp's 16 rows in pieces of 16 bytes: those of a lane. Of eight
// neighbouring lanes, which have a row of values or four of keys, none has the banks of another.
template <class Tile>
class row_pieces {
  using T = typename Tile::dtype;
  static constexpr int kElements = 16 / sizeof(T), kLanes = Tile::cols / kElements;  // of a row
  static constexpr int kRows = kWarp / kLanes;  // from a piece to the next

 public:
  // From token `first` of the head that is there, of columns `column` and on.
  KITTENS_DEVICE row_pieces(T* head, const token_rows<T>& of, int first, int length, int column = 0)
      : row(arch::warp_id() % 4 * 16 + arch::lane_id() / kLanes),
        in_tile(arch::lane_id() % kLanes * kElements),
        rows(column + in_tile < of.width ? length - first : 0),
        stride(of.strides.token),
        at(head + (first + row) * stride + column + in_tile) {}

  // Zeros where the tensor ends.
  KITTENS_DEVICE void load_async(Tile& tile) const {
#pragma unroll
    for (int i = 0; i < 16; i += kRows) {
      arch::cp_async<16>(&tile(row + i, in_tile), at + i * stride, row + i < rows);
    }
  }
  KITTENS_DEVICE void store(const Tile& tile) const {
#pragma unroll
    for (int i = 0; i < 16; i += kRows) {
      if (row + i >= rows) continue;
      const uint4 piece =
          arch::load_shared(reinterpret_cast<const uint4*>(&tile(row + i, in_tile)));
      arch::store_global(reinterpret_cast<uint4*>(at + i * stride), piece);
    }
  }

 private:
  const int row, in_tile, rows;  // in the tile, and how many of the tile exist
  const int64_t stride;
  T* const at;
};

template <class Config>
class generic_walk : protected pass_state<Config> {
  using base = pass_state<Config>;

 public:
  using base::base;

 protected:
  using base::at, base::p, base::shared, base::state, base::stream, base::kBarrier;
  using typename base::T;

  // f(the first token) for each chunk of the segment, once it is there. The one after it comes
  // meanwhile, into the stage of the one before.
  template <class F>
  KITTENS_DEVICE void for_each_chunk(F f) {
    if (arch::thread_id() == 0) shared.places.set(p, stream);
    arch::sync_block();
    request(0, 0);
    this->load_state();
    float2 next = this->load_factors(0);
    this->store_factors(next);
    meet();
#pragma unroll 1
    for (int step = 0; step < stream.count; ++step, at.advance()) {
      request(step + 1, 1 - at.stage);
      next = this->load_factors(step + 1);
      f(this->token(step), next);
    }
    this->store_state();
  }

  KITTENS_DEVICE void store_features() {}
  KITTENS_DEVICE base::values_of_rows transposed_values() { return this->load_values(); }
  KITTENS_DEVICE void fence_reads() {}
  // state += values · features of keys, which each warp makes for itself: so they take no shared
  // memory, whose bandwidth they would cost too, more than their multiplications cost.
  KITTENS_DEVICE void add_to_state(const base::values_of_rows& v) {
#pragma unroll
    for (int i = 0; i < kChunk / 16; ++i) {
      rt<T, 16, kKeys, ducks::rt_layout::col> keys;
      load_fragment<true>(keys.data[0], shared.keys[at.stage], i * 16, 0);
      rt<T, 16, kColumns, ducks::rt_layout::col> features;
      make_features(features, keys);
      rt<T, 16, 16> of_tokens;
#pragma unroll
      for (int j = 0; j < 4; ++j) of_tokens.data[0][j] = v.data[0][4 * i + j];
      mma_AB(state, of_tokens, features, state);
    }
  }
  KITTENS_DEVICE void release() {}
  // All meet, over what they have written and what they have had copied.
  KITTENS_DEVICE void meet() {
    load_async_wait<0>();
    warpgroup::sync(kBarrier);
  }

  // A warp's results go out before it goes on.
  KITTENS_DEVICE void store_values(const Config::value_tile& tile, int token) {
    store(tile, shared.places.o, p.o, token, stream.part * kValues);
  }
  KITTENS_DEVICE void store_key_gradients(const Config::key_tile& tile, int token) {
    store(tile, shared.places.key_gradients, p.key_gradients, token, 0);
  }
  KITTENS_DEVICE void end_results() {}

 private:
  template <class Tile>
  KITTENS_DEVICE void store(const Tile& tile, T* head, const token_rows<T>& of, int token,
                            int column) {
    arch::sync_warp();  // all lanes have written it
    row_pieces<Tile>(head, of, token, p.length, column).store(tile);
    arch::sync_warp();  // all have read it: the next may be written
  }
  KITTENS_DEVICE void request(int step, int stage) {
    if (step < stream.count) {
      const auto ask = [&]<class Tile>(Tile& tile, T* head, const token_rows<T>& of, int column) {
        row_pieces<Tile>(head, of, this->token(step), p.length, column).load_async(tile);
      };
      const auto& from = shared.places;
      const int column = stream.part * kValues;
      ask(shared.keys[stage], from.keys, p.keys, 0);
      ask(shared.values[stage], from.values, p.values, column);
      if constexpr (Config::outputs) ask(shared.row_keys[stage], from.row_keys, p.row_keys, 0);
      if constexpr (Config::differentiates) {
        ask(shared.row_values[stage], from.row_values, p.row_values, column);
      }
    }
    load_async_commit();
  }
};

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
