// based_attention: what all passes share, of both kernels: the state that goes along, and what is
// taken of a chunk that is there. (based_attention.cuh, based_attention_generic.cuh)
#pragma once

#include "kernels/based_attention/based_attention_products.cuh"
#include "kernels/based_attention/based_attention_sums.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class pass_state {
 public:
  KITTENS_DEVICE pass_state(const arguments_of<Config>& p, shared_of<Config>& shared)
      : p(p), shared(shared), stream(chunk_stream::of(p)) {}

 protected:
  using T = typename Config::type;
  using values_of_rows = rt<T, 16, kChunk>;  // transposed: [values, tokens]
  using of_tokens = key_sums<T>::of_tokens;
  static constexpr int kBarrier = 1;
  const arguments_of<Config>& p;
  shared_of<Config>& shared;
  const chunk_stream stream;
  cursor<Config::stages> at;
  rt_fl<16, kColumns> state;  // [values, columns of features]
  key_sums<T> sums;           // with p.normalize alone

  KITTENS_DEVICE static int warp_row() { return arch::warp_id() % 4 * 16; }
  KITTENS_DEVICE int token(int step) const { return stream.template token<Config>(step); }
  // Whether the values have factors, in shared memory.
  KITTENS_DEVICE bool has_factors() const { return Config::reverse && p.normalize; }

  // The factors of the values of the chunk of a step, by one thread a token …
  KITTENS_DEVICE float2 load_factors(int step) const {
    if (!has_factors() || step >= stream.count || arch::thread_id() >= kChunk) return {};
    return arch::load_global(p.factors + factor_row(token(step)) + arch::thread_id());
  }
  // … into shared memory, between two barriers.
  KITTENS_DEVICE void store_factors(float2 factors) {
    if (!has_factors() || arch::thread_id() >= kChunk) return;
    shared.factors[0].data[arch::thread_id()] = factors.x;
    shared.factors[1].data[arch::thread_id()] = factors.y;
  }
  KITTENS_DEVICE int64_t factor_row(int token) const {
    return head() * ((p.length + kChunk - 1) / kChunk * kChunk) + token;
  }

  KITTENS_DEVICE void add_to_sums(int token) {
    if (!p.normalize) return;
    if constexpr (Config::reverse) {
      of_tokens weights;
      load(weights, shared.factors[1]);
      sums.add(shared.keys[at.stage], weights);
    } else {
      const int left = p.length - token;
      sums.add(shared.keys[at.stage], left < kChunk ? left : kChunk);
    }
  }
  // The values, transposed and times their factors, as an operand in registers.
  KITTENS_DEVICE values_of_rows load_values() {
    values_of_rows v;
#pragma unroll
    for (int i = 0; i < kChunk / 16; ++i) {
      load_fragment<true>(v.data[0] + 4 * i, shared.values[at.stage], i * 16, warp_row());
    }
    if (has_factors()) {
      of_tokens factors;
      load(factors, shared.factors[0]);
      mul_col(v, v, factors);
    }
    return v;
  }
  // For the next chunk's products: there after a barrier.
  KITTENS_DEVICE void publish_state() {
    rt<T, 16, kColumns> weighted;
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {  // pairs, two a group
      const float weight = weight_of_group(i / 2, p.scale);
      const bool one = i / 2 == kOne / 8 && arch::lane_id() % 4 == kOne % 8 / 2;
      weighted.data[0][i] =
          pack<T>(state.data[0][2 * i] * (one ? 1 : weight), state.data[0][2 * i + 1] * weight);
    }
    products_of<Config>::store(shared.state, weighted);
  }

  // The state before the segment: the initial one, and what the segments before it add.
  KITTENS_DEVICE void load_state() {
    zero(state);
    sums.clear();
    place_columns();
    if constexpr (Config::outputs) {
      add_states(head(), p.initial_state, p.initial_sums);
      constexpr int kNext = Config::reverse ? -1 : 1;
#pragma unroll 1
      for (int i = Config::reverse ? p.segments - 1 : 0; i != stream.segment; i += kNext) {
        add_states(head_of(i), p.segment_states, p.segment_sums);
      }
      publish_state();
    }
  }
  KITTENS_DEVICE void store_state() {
    float* states = p.segment_states;
    float* of_sums = p.segment_sums;
    int64_t of_head = head_of(stream.segment);
    if constexpr (Config::outputs) {
      if (stream.segment != (Config::reverse ? 0 : p.segments - 1)) return;
      states = p.final_state;
      of_sums = p.final_sums;
      of_head = head();
    }
    if (states != nullptr) {
      for_each(of_head, states, [](float x, const column_place& place, const float* to) {
        arch::store_global(const_cast<float*>(to), x * place.root);
      });
    }
    if (p.normalize && of_sums != nullptr && stream.part == 0 && arch::warp_id() == 0) {
      sums.store(of_sums + of_head * p.features, p.key_width, p.scale);
    }
  }

 private:
  // Once, by a column a thread: made where they are needed, by each lane for each of its elements,
  // they were nine tenths of the kernel's code.
  KITTENS_DEVICE void place_columns() {
    const auto roots = feature_roots::of(p.scale);
#pragma unroll 1
    for (int i = arch::thread_id(); i < kColumns; i += Config::threads) {
      const auto column = feature_column::of(i);
      const float root = roots.of_column(column);
      const int row = column.row(p.key_width);
      column_place{row < 0 ? -1 : row * p.value_width, root, 1 / root, 0}.store(shared.columns[i]);
    }
    if (Config::outputs) warpgroup::sync(kBarrier);  // else all meet before the first chunk
  }
  // f(this lane's element of the state, its column's place, where it is in memory) for each that
  // exists.
  template <class F>
  KITTENS_DEVICE void for_each(int64_t head, const float* data, F f) {
    using tile = rt_fl<16, kColumns>;
    const int lane = arch::lane_id();
    const int first = stream.part * kValues + warp_row();
    data += head * p.features * p.value_width + first;
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {  // pairs of columns
      const int value = tile::across(0, i % 4, lane), column = tile::along(i / 4, i % 4, lane);
      if (first + value >= p.value_width) continue;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const auto place = column_place::load(shared.columns[column + j]);
        if (place.offset >= 0) f(state.data[0][2 * i + j], place, data + place.offset + value);
      }
    }
  }
  KITTENS_DEVICE int64_t head() const { return int64_t{stream.batch} * p.heads + stream.head; }
  KITTENS_DEVICE int64_t head_of(int segment) const {
    return int64_t{segment} * p.batch * p.heads + head();
  }

  KITTENS_DEVICE void add_states(int64_t of_head, const float* states, const float* of_sums) {
    if (states != nullptr) {
      for_each(of_head, states, [](float& x, const column_place& place, const float* from) {
        x += arch::load_global(from) * place.inverse;
      });
    }
    if (p.normalize && of_sums != nullptr) {
      sums.add(of_sums + of_head * p.features, p.key_width, p.scale);
    }
  }
};

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
