// cross_entropy of rows of any width: loss, and gradient.
//
//   logits [rows, width], targets [rows] → loss [rows], gradient [rows, width]
//
// Memory-bound: logits are read once and the gradient is written once. A persistent block has every
// gridDim-th row. One thread keeps a ring of chunks of shared memory full by bulk copies; the other
// warps go over a row's chunks twice: for its sums, while they arrive, then for its gradient, after
// which their place is free for the next row.
//
//   ring            `slots` chunks; a row's last `kept` chunks stay there between the two passes:
//                   two are left for what comes next
//   wider rows      their first chunks are loaded a second time, behind the others: from L2, as far
//                   as what all blocks read again fits there
//   no gradient     one pass; no chunk is kept
//   ignored rows    are not loaded
//   far rows        give back the chunks that the second pass would have taken, and go to memory
#pragma once

#include "kernels/cross_entropy/cross_entropy_far.cuh"
#include "kernels/cross_entropy/cross_entropy_row.cuh"

namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET {

// Warps: that compute. Vectors: of 16 bytes, of a thread in each chunk. Slots: chunks of the ring.
template <class T, int Warps, int Vectors, int Slots>
struct cross_entropy_stream_config {
  using type = T;
  using vector = vector16<T>;
  static constexpr int warps = Warps, vectors = Vectors, slots = Slots, kept = Slots - 2;
  static constexpr int workers = Warps * kWarp;
  static constexpr int threads = workers + kWarp;
  static constexpr int chunk_vectors = Vectors * workers;
  static constexpr int chunk_columns = chunk_vectors * vector::kLength;
};

template <class Config>
struct cross_entropy_stream_shared {
  typename Config::type chunk[Config::slots][Config::chunk_columns];
  ring<Config::slots> stages;
  group_sums sums;
};

// A row's chunks, in the order in which they are loaded: 0 … count − 1, then 0 … again − 1.
template <class Config>
struct chunk_list {
  int count, again;

  KITTENS_DEVICE chunk_list(int vectors, bool gradient) {
    count = (vectors + Config::chunk_vectors - 1) / Config::chunk_vectors;
    const int kept = gradient ? Config::kept : 0;
    again = count > kept ? count - kept : 0;
  }
};

// The targets of this block's rows, each loaded a row before it is needed.
class target_stream {
 public:
  KITTENS_DEVICE explicit target_stream(const cross_entropy_forward_params& p) : p_(p) {
    request(arch::block_x());
  }
  // That of row r, the next one.
  KITTENS_DEVICE int64_t next(int64_t r) {
    const int64_t target = ahead_;
    request(r + arch::grid_x());
    return target;
  }

 private:
  KITTENS_DEVICE void request(int64_t r) {
    if (r < p_.rows) ahead_ = load_target(p_, r);
  }

  const cross_entropy_forward_params& p_;
  int64_t ahead_ = 0;
};

// One thread's part in the ring: asks for the chunks of this block's rows.
template <class Config>
KITTENS_DEVICE void load_chunks(const cross_entropy_forward_params& p,
                                cross_entropy_stream_shared<Config>& shared) {
  using T = typename Config::type;
  const bool gradient = p.gradient != nullptr;
  target_stream targets(p);
  cursor<Config::slots> at;
  for (int64_t r = arch::block_x(); r < p.rows; r += arch::grid_x()) {
    if (targets.next(r) == p.ignore_index) continue;
    const auto* row = static_cast<const T*>(p.logits) + r * p.stride;
    const row_pieces<T> pieces(row, p.width);
    const chunk_list<Config> chunks(pieces.vectors, gradient);
    const int loads = chunks.count + (gradient ? chunks.again : 0);
    for (int load = 0; load < loads; ++load, at.advance()) {
      const int first = (load < chunks.count ? load : load - chunks.count) * Config::chunk_vectors;
      const int left = pieces.vectors - first;
      const int bytes = 16 * (left < Config::chunk_vectors ? left : Config::chunk_vectors);
      shared.stages.wait_empty(at);
      shared.stages.expect(at, bytes);
      arch::bulk_load(shared.chunk[at.stage], row + pieces.column(first), bytes,
                      &shared.stages.full[at.stage].barrier);
    }
  }
}

// One thread's view of a row whose chunks come through the ring.
template <class Config>
struct chunked_row {
  using T = typename Config::type;
  using vector = typename Config::vector;
  using place = cursor<Config::slots>;

  cross_entropy_stream_shared<Config>& shared;
  row_pieces<T> pieces;
  const T* x;
  T* gradient;  // null: not wanted
  int thread;

  // The vectors are `workers` apart.
  KITTENS_DEVICE int vector_of(int chunk, int i) const {
    return chunk * Config::chunk_vectors + i * Config::workers + thread;
  }
  KITTENS_DEVICE bool exists(int chunk, int i) const {
    return vector_of(chunk, i) < pieces.vectors;
  }
  // This thread's logits of a chunk; −inf where there are none.
  KITTENS_DEVICE void read(float (&x)[Config::vectors][vector::kLength], int slot,
                           int chunk) const {
    typename vector::run runs[Config::vectors];
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) {
      const int at = (i * Config::workers + thread) * vector::kLength;
      runs[i] = vector::all(-kInfinity);
      if (exists(chunk, i)) runs[i] = vector::from_shared(&shared.chunk[slot][at]);
    }
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) runs[i].get(x[i]);
  }
  KITTENS_DEVICE void include_chunk(near_sums& sums, int slot, int chunk, bool smoothing) const {
    float x[Config::vectors][vector::kLength], all[Config::vectors * vector::kLength];
    read(x, slot, chunk);
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) {
#pragma unroll
      for (int k = 0; k < vector::kLength; ++k) all[i * vector::kLength + k] = x[i][k];
    }
    sums.include(all);
    if (!smoothing) return;
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) {
      if (exists(chunk, i)) sums.include_plain(x[i]);
    }
  }
  KITTENS_DEVICE void store_chunk(const row_gradient<near_powers>& rule, const place& at, int chunk,
                                  bool aligned) const {
    float x[Config::vectors][vector::kLength];
    read(x, at.stage, chunk);
    shared.stages.release_after_loads(at);
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) rule.apply(x[i]);
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) {
      if (!exists(chunk, i)) break;
      const int column = pieces.column(vector_of(chunk, i));
      rule.hit_target(x[i], column);
      typename vector::run result;
      result.set(x[i]);
      vector::to_global(gradient + column, result, aligned);
    }
  }
  // This thread's part of the row, in memory.
  KITTENS_DEVICE far_row<T> far() const {
    return {x, pieces, thread, Config::workers, pieces.vectors, has_loose() ? thread : -1};
  }
  KITTENS_DEVICE bool has_loose() const { return pieces.has_loose(thread); }
  KITTENS_DEVICE int loose_column() const { return pieces.loose_column(thread); }

  // The row's chunks a first time; `at` goes on behind them, and `kept` stays at the first that is
  // still there.
  KITTENS_DEVICE void include_chunks(near_sums& sums, place& at, place& kept,
                                     const chunk_list<Config>& chunks, bool smoothing) const {
    for (int chunk = 0; chunk < chunks.count; ++chunk, at.advance()) {
      if (chunk == chunks.again) kept = at;
      shared.stages.wait_full(at);
      include_chunk(sums, at.stage, chunk, smoothing);
      if (chunk < chunks.again) shared.stages.release_after_loads(at);
    }
  }
  // And a second time: those that are still there, then those that come again.
  KITTENS_DEVICE void store_chunks(const row_gradient<near_powers>& rule, place& at, place kept,
                                   const chunk_list<Config>& chunks) const {
    const bool aligned = elements_past_16_bytes(gradient + pieces.head) == 0;
    for (int chunk = chunks.again; chunk < chunks.count; ++chunk, kept.advance()) {
      store_chunk(rule, kept, chunk, aligned);
    }
    for (int chunk = 0; chunk < chunks.again; ++chunk, at.advance()) {
      shared.stages.wait_full(at);
      store_chunk(rule, at, chunk, aligned);
    }
  }
  // Instead of the second time. Afterwards no copy reads the row any more.
  KITTENS_DEVICE void release_chunks(place& at, place kept,
                                     const chunk_list<Config>& chunks) const {
    for (int chunk = chunks.again; chunk < chunks.count; ++chunk, kept.advance()) {
      shared.stages.release_after_loads(kept);
    }
    for (int chunk = 0; chunk < chunks.again; ++chunk, at.advance()) {
      shared.stages.wait_full(at);
      shared.stages.release_after_loads(at);
    }
  }
  KITTENS_DEVICE void store_zeros() const {
    const bool aligned = elements_past_16_bytes(gradient + pieces.head) == 0;
    for (int v = thread; v < pieces.vectors; v += Config::workers) {
      vector::to_global(gradient + pieces.column(v), vector::all(0.0f), aligned);
    }
    if (has_loose()) arch::store_global(gradient + loose_column(), convert<T>(0.0f));
  }
};

// What the warps that compute do with this block's rows.
template <class Config>
KITTENS_DEVICE void work_on_chunks(const cross_entropy_forward_params& p,
                                   cross_entropy_stream_shared<Config>& shared, float divided_by) {
  using T = typename Config::type;
  const int thread = arch::thread_id();
  const bool smoothing = p.label_smoothing > 0.0f;
  const float inverse = 1.0f / divided_by;
  target_stream targets(p);
  cursor<Config::slots> at;
  int half = 0;
  for (int64_t r = arch::block_x(); r < p.rows; r += arch::grid_x()) {
    const auto* x = static_cast<const T*>(p.logits) + r * p.stride;
    auto* gradient =
        p.gradient == nullptr ? nullptr : static_cast<T*>(p.gradient) + r * p.gradient_stride;
    const chunked_row<Config> row{shared, {x, p.width}, x, gradient, thread};
    const int64_t target = targets.next(r);
    if (target == p.ignore_index) {
      if (thread == 0) hand_in_loss(p, r, 0.0f);
      if (gradient != nullptr) row.store_zeros();
      continue;
    }

    // Needed after the first pass alone.
    const int column = column_of(target, p.width);
    const float x_target =
        thread == 0 && column >= 0 ? convert<float>(arch::load_global(x + column)) : 0.0f;
    const float dloss = p.dloss == nullptr ? 1.0f : arch::load_global(p.dloss + r * p.dloss_stride);
    float loose[1] = {0.0f};
    if (row.has_loose()) loose[0] = convert<float>(arch::load_global(x + row.loose_column()));

    const chunk_list<Config> chunks(row.pieces.vectors, gradient != nullptr);
    const auto meet = [&](auto& sums) {
      combine(sums, shared.sums, half, arch::warp_id(), Config::warps, smoothing);
      half ^= 1;
    };
    const auto hand_in = [&](const auto& sums) {
      const float lse = log_sum_exp(sums, column);
      if (thread == 0) {
        tell_if_outside(p, r, column);
        hand_in_loss(p, r, loss_of(p, sums.plain, lse, x_target));
      }
      return gradient_of(p, sums, lse, column, dloss * inverse);
    };
    near_sums sums;
    auto kept = at;
    row.include_chunks(sums, at, kept, chunks, smoothing);
    if (row.has_loose()) sums.include_one(loose[0], smoothing);
    meet(sums);
    if (is_far<T>(sums)) [[unlikely]] {
      if (gradient != nullptr) row.release_chunks(at, kept, chunks);
      const far_row<T> part = row.far();
      far_sums again = part.sums(smoothing);
      meet(again);
      const auto rule = hand_in(again);
      if (gradient != nullptr) part.store_gradient(gradient, rule);
      continue;
    }
    const auto rule = hand_in(sums);
    if (gradient == nullptr) continue;
    row.store_chunks(rule, at, kept, chunks);
    if (!row.has_loose()) continue;
    rule.apply(loose);
    rule.hit_target(loose, row.loose_column());
    arch::store_global(gradient + row.loose_column(), convert<T>(loose[0]));
  }
}

// Grid: any number of blocks.
template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    cross_entropy_stream(const __grid_constant__ cross_entropy_forward_params p) {
  auto& shared = *reinterpret_cast<cross_entropy_stream_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) shared.stages.init(Config::warps);
  arch::sync_block();
  if (arch::warp_id() < Config::warps) {
    const float divided_by = divisor(p, count_of_lane(p));
    work_on_chunks<Config>(p, shared, divided_by);
    const bool last = arch::warp_id() == 0 && arch::block_x() == arch::grid_x() - 1;
    if (last && p.total != nullptr) add_up_losses(p, divided_by);
  } else if (arch::lane_id() == 0) {
    load_chunks<Config>(p, shared);
  }
}

}  // namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET
