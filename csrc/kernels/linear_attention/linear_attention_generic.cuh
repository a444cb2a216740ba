// linear attention, chunkwise, for every architecture since sm_80: the function of
// linear_attention_chunkwise.cuh, in all its roles, by mma.sync, ldmatrix and cp.async.
//
// A block has a head: all of its sequence, or a segment. Each warp has 16 columns of v and o, and
// their state, Sᵀ [16, K], in its registers. So that the state is a product's left side as it lies
// there, o is computed transposed. A chunk of 32 tokens is
//
//   weights [32, 32] = decayed (q kᵀ)      four warps, 16 × 16 each: through shared memory
//   oᵀ = decayed (Sᵀ qᵀ) + vᵀ weightsᵀ     each warp
//   Sᵀ = decayed Sᵀ + (decayed vᵀ) k       each warp
//
// Of the four 16 × 16 one holds nothing but later tokens. Its warp leaves the decays of the next
// chunk instead (linear_attention_decays.cuh), which all of them read.
//
// Why chunks of 32, where the kernel for Hopper has 64: two stages of q, k and v take 24 to 48 KiB,
// so that blocks share the 100 KiB that some architectures have; scores take half of the work; and
// of oᵀ a lane has 16 elements, which leaves registers for the state.
//
// Synchronisation, a chunk: all wait for its copies and meet, and then the next one is asked for,
// where the one before has been; they meet again over the weights. A warp's own columns of v are in
// registers from the beginning: what o is dotted with is copied there, and then o goes out from
// there.
//
// Rounding: as the kernel for Hopper. The state and decayed v are rounded to v's type for a
// product, and so are the weights.
#pragma once

#include "kernels/linear_attention/linear_attention_generic_copies.cuh"
#include "kernels/linear_attention/linear_attention_state.cuh"
#include "kernels/linear_attention/linear_attention_values.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class linear_attention_generic_block {
 public:
  using arguments = linear_attention_generic_arguments<typename Config::type>;

  KITTENS_DEVICE linear_attention_generic_block(const arguments& p,
                                                linear_attention_generic_shared<Config>& shared)
      : p(p),
        shared(shared),
        stream(chunk_stream::of<Config>(p, arch::block_x() / p.value_parts)),
        first_column(arch::block_x() % p.value_parts * kValues),
        warp(arch::warp_id()),
        keys(p.k, stream, token(0)),
        queries(p.q, stream, token(0)),
        of_values(p.v, stream, token(0), first_column) {}

  KITTENS_DEVICE void compute() {
    if (stream.is_empty()) return;
    if (arch::thread_id() == 0) shared.places.template set<Config>(p, stream);
    arch::sync_block();
    if (warp == kIdle) request_gates(0);
    load_async_commit();
    request(0);
    if (warp == kIdle) {
      load_async_wait<1>();
      leave_decays<Config>(shared.decays[0], shared.gates[0], shared.places.gates, p,
                           gate_tokens::of_step<Config>(stream, 0));
      if constexpr (Config::outputs) zero_later_weights();
    }
    load_state<Config>(p, stream, value_part(), state);
    float decay = 0;  // log₂
#pragma unroll 1
    for (int step = 0; step < stream.count; ++step) {
      load_async_wait<0>();
      arch::sync_block();  // all is there, and all are through with the chunk before
      if constexpr (Config::outputs) {
        attend(step);
      } else {
        request(step + 1);
        values v;
        load_values(v, shared.v[step % Config::stages], first_value());
        leave_next_decays(step);
        decay += decays_of(step).total;
        add_to_state(v, step);
      }
    }
    store_state<Config>(p, stream, value_part(), state, decay);
    if constexpr (Config::outputs) {
      arch::sync_block();
      store_dots(stream.count - 1);
    }
  }

 private:
  using T = typename Config::type;
  using values = rt<T, 16, Config::chunk>;  // vᵀ: [values, tokens]
  using output = rt_fl<16, Config::chunk>;  // oᵀ
  using of_tokens = typename output::row_vec;
  using scores = rt_fl<16, 16>;
  using decays_type = decays_of_tokens<Config::chunk>;
  using value_tile = typename Config::value_tile;
  using pieces = lane_pieces<value_tile>;  // of the warp's columns
  // A warp has rows 16 · (warp % 2) and columns 16 · (warp / 2) of the scores. This one's
  // come later than its rows, and are 0.
  static constexpr int kIdle = Config::reverse ? 1 : 2;

  const arguments& p;
  linear_attention_generic_shared<Config>& shared;
  const chunk_stream stream;
  const int first_column;  // of v and o
  const int warp;
  chunk_copies<typename Config::key_tile> keys, queries;
  chunk_copies<value_tile> of_values;
  consumer_state<Config> state;  // [values, keys]

  KITTENS_DEVICE int first_value() const { return warp * 16; }  // in the tiles
  KITTENS_DEVICE int value_part() const { return first_column / kValues; }
  KITTENS_DEVICE int columns() const { return p.values - first_column; }
  KITTENS_DEVICE decays_type& decays_of(int step) const {
    return shared.decays[step % Config::stages];
  }
  KITTENS_DEVICE int token(int step) const { return stream.template token<Config>(step); }

  // Has the chunk of a step brought, one after the other, and the gates of the next.
  KITTENS_DEVICE void request(int step) {
    if (step < stream.count) {
      const int stage = step % Config::stages, rows = stream.length - token(step);
      keys.start(shared.k[stage], p.k.strides.token, rows, p.keys, Config::reverse);
      if constexpr (Config::outputs) {
        queries.start(shared.q[stage], p.q.strides.token, rows, p.keys, Config::reverse);
      }
      of_values.start(shared.v[stage], p.v.strides.token, rows, columns(), Config::reverse);
      if (warp == kIdle) request_gates(step + 1);
    }
    load_async_commit();  // of nothing, too: waits count groups
  }

  KITTENS_DEVICE void request_gates(int step) {
    auto& to = shared.gates[step % Config::stages];
    request_gates_of<Config>(to, shared.places.gates, p,
                             gate_tokens::of_step<Config>(stream, step));
  }

  // While the chunk of a step is computed.
  KITTENS_DEVICE void leave_next_decays(int step) {
    if (warp != kIdle) return;
    leave_decays<Config>(decays_of(step + 1), shared.gates[(step + 1) % Config::stages],
                         shared.places.gates, p, gate_tokens::of_step<Config>(stream, step + 1));
  }

  // One chunk: its part of o, and the state behind it.
  KITTENS_DEVICE void attend(int step) {
    const int stage = step % Config::stages;
    const decays_type& decays = decays_of(step);
    if constexpr (!Config::reverse) pass_anchor_of(step);
    store_dots(step - 1);
    values v;
    load_values(v, shared.v[stage], first_value());
    if (p.dots != nullptr) request_dotted(step);
    request(step + 1);
    leave_next_decays(step);
    if (warp != kIdle) leave_weights(step);

    const bool by_factors = takes_factors<T>(decays.total);
    of_tokens of_token;
    load(of_token, decays.to_end);
    values decayed;
    mul_col(decayed, v, of_token);
    // By factors, all rows of o take the whole chunk's decay of the state before it.
    const float decay = arch::exp2_approx(decays.total);
    if (by_factors) mul(state, state, decay);
    output o;
    rt<T, 16, Config::key_width> left;
    copy(left, state);
    mm_ABt(o, left, shared.q[stage]);
    if (!by_factors) {
      load(of_token, decays.before);
      mul_col(o, o, of_token);
      mul(state, state, decay);
    }
    mma_AB(state, decayed, shared.k[stage], state);
    arch::sync_block();  // the weights are there
#pragma unroll
    for (int i = 0; i < Config::chunk / 16; ++i) {
      rt<T, 16, 16> part;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        part.data[0][j] = by_factors ? decayed.data[0][4 * i + j] : v.data[0][4 * i + j];
      }
      mma_ABt(o, part, shared.weights[i], o);
    }
    load(of_token, decays.after);
    mul_col(o, o, of_token);
    if (p.dots != nullptr) leave_dots(o, stage);
    if (p.o_weights != nullptr) {
      load(of_token, decays.weights);
      mul_col(o, o, of_token);
    }
    if (p.skip != nullptr) add_skipping(o, v);
    store_output(o, step);
    if constexpr (Config::reverse) pass_anchor_of(step);
  }
  KITTENS_DEVICE void pass_anchor_of(int step) const {
    pass_anchor<Config>(p, shared.places.anchors, token(step), value_part(), state);
  }

  // Of scores that come later than their rows: they stay so.
  KITTENS_DEVICE void zero_later_weights() {
    rt<T, 16, 16> zeros;
    zero(zeros);
    store_weights(zeros);
  }
  KITTENS_DEVICE void store_weights(const rt<T, 16, 16>& weights) {
    group<2>::store_unfenced(shared.weights[warp / 2], weights);
  }

  // This warp's scores, times the decays from the earlier token to the later.
  KITTENS_DEVICE void leave_weights(int step) {
    const int stage = step % Config::stages, row_half = warp % 2, column_half = warp / 2;
    const decays_type& decays = decays_of(step);
    rt<T, 16, Config::key_width> rows;
    group<2>::load(rows, shared.q[stage]);
    scores s;
    mm_ABt(s, rows, rows_of<16>(shared.k[stage], 16 * column_half));
    if (p.own_scores != nullptr && first_column == 0 && row_half == column_half) {
      store_own_scores(s, token(step) + 16 * row_half);
    }
    if (!takes_factors<T>(decays.total)) {  // else what they weight has decayed
      scores::row_vec of_columns;
      scores::col_vec of_rows;
      load(of_columns, decays_type::sixteen(decays.log_to_end, column_half));
      load(of_rows, decays_type::sixteen(decays.log_from_end, row_half));
      scores factors;
      broadcast_col(factors, of_columns);
      add_row(factors, factors, of_rows);
      exp2(factors, factors);  // of what comes later infinity, maybe, but hidden below
      mul(s, s, factors);
    }
    if (row_half == column_half) Config::reverse ? triu(s, s, 0, 0) : tril(s, s, 0, 0);
    rt<T, 16, 16> weights;
    copy(weights, s);
    store_weights(weights);
  }

  // The diagonal of the scores, q · k of each token: in the quarters 0 and 3.
  KITTENS_DEVICE void store_own_scores(const scores& s, int first_token) const {
    const int lane = arch::lane_id();
    const int beyond = lane / 4 - lane % 4 * 2;  // of the row, from this lane's first column
    if (beyond != 0 && beyond != 1) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_token + half * 8 + lane / 4;
      const float* const pair = &s.data[0][2 * 3 * half];
      if (row >= stream.length) continue;
      arch::store_global(shared.places.own_scores + int64_t{row} * p.heads,
                         beyond == 0 ? pair[0] : pair[1]);
    }
  }

  // state = state · decay of the chunk + vᵀ k, with v decayed to the chunk's end.
  KITTENS_DEVICE void add_to_state(const values& v, int step) {
    const decays_type& decays = decays_of(step);
    of_tokens to_end;
    load(to_end, decays.to_end);
    values decayed;
    mul_col(decayed, v, to_end);
    mul(state, state, arch::exp2_approx(decays.total));
    mma_AB(state, decayed, shared.k[step % Config::stages], state);
  }

  // o += skip · v
  KITTENS_DEVICE void add_skipping(output& o, const values& v) const {
    const float skip = arch::load_global(shared.places.skip);
    output skipping;
    copy(skipping, v);
    map([&](float sum, float x) { return fmaf(skip, x, sum); }, o, o, skipping);
  }

  // What o's rows are multiplied by comes to where v was.
  KITTENS_DEVICE void request_dotted(int step) {
    auto& tile = shared.v[step % Config::stages];
    const pieces mine(first_value());
    const int64_t stride = p.dotted.strides.token;
    const T* const from =
        shared.places.dotted + (token(step) + mine.row) * stride + first_column + mine.column;
    arch::sync_warp();  // all lanes have read the values
#pragma unroll
    for (int i = 0; i < Config::chunk; i += pieces::kRows) {
      arch::cp_async<16>(mine.at(tile, i), from + i * stride, exists(mine, step, i));
    }
    load_async_commit();
  }

  // Σ o ∘ dotted over the warp's columns, of each token.
  KITTENS_DEVICE void leave_dots(const output& o, int stage) {
    load_async_wait<1>();  // the next chunk's copies go on
    arch::sync_warp();
    values dotted;
    load_values(dotted, shared.v[stage], first_value());
    output products;
    mul(products, o, dotted);
    of_tokens sums;
    col_sum(sums, products);
    store(shared.dots[warp], sums);
  }

  // Those of a step, of all warps: once they have met.
  KITTENS_DEVICE void store_dots(int step) const {
    if (p.dots == nullptr || step < 0 || warp != 0) return;
    const int lane = arch::lane_id(), row = token(step) + lane;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Config::warps; ++i) sum += shared.dots[i].data[lane];
    if (row >= stream.length) return;
    const int64_t place = int64_t{row} * p.heads * p.value_parts;
    arch::store_global(shared.places.dots + place + value_part(), sum);
  }

  // o, rounded, through where v was.
  KITTENS_DEVICE void store_output(const output& o, int step) {
    auto& tile = shared.v[step % Config::stages];
    values rounded;
    copy(rounded, o);
    rt<T, Config::chunk, 16> rows;
    transpose(rows, rounded);
    arch::sync_warp();  // all lanes have read the values, or what is dotted
    const int lane = arch::lane_id();
    const int first =
        value_tile::index(rows.across(0, 0, lane), first_value() + rows.along(0, 0, lane));
#pragma unroll
    for (int i = 0; i < Config::chunk / 16; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = detail::moved_index<value_tile>(first, 16 * i + j % 2 * 8, j / 2 * 8);
        arch::store_shared(reinterpret_cast<uint32_t*>(&tile.data[at]), rows.data[i][j]);
      }
    }
    arch::sync_warp();
    const int64_t width = int64_t{p.heads} * p.values;
    const pieces mine(first_value());
    T* const to = shared.places.o + (token(step) + mine.row) * width + first_column + mine.column;
#pragma unroll
    for (int i = 0; i < Config::chunk; i += pieces::kRows) {
      if (!exists(mine, step, i)) continue;
      const uint4 piece = arch::load_shared(reinterpret_cast<const uint4*>(mine.at(tile, i)));
      arch::store_global(reinterpret_cast<uint4*>(to + i * width), piece);
    }
  }

  // Whether o has a piece of the chunk, so many rows further.
  KITTENS_DEVICE bool exists(const pieces& piece, int step, int rows) const {
    return token(step) + piece.row + rows < stream.length && piece.column < columns();
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks_per_multiprocessor)
    linear_attention_generic(
        const __grid_constant__ linear_attention_generic_arguments<typename Config::type> p) {
  auto& s = *reinterpret_cast<linear_attention_generic_shared<Config>*>(arch::dynamic_shared());
  linear_attention_generic_block<Config>(p, s).compute();
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
