// The two products beside gelu, on Hopper's tensor cores, with all that is done element by element
// behind them: what they gain is in benchmarks/mlp.md.
//
// Two blocks are a cluster, with 128 rows of the result each and the same 128 columns: each asks
// for half of the weight's tile, which TMA puts into both. A block has two consumers, which take
// its tiles in turn: one's products run while the other is in its epilogue, at gelu (an ordered
// barrier; CUTLASS calls it ping-pong). What an epilogue reads or writes beside the sums goes
// through four subtiles of the consumer's own, 64 × 64, which a thread of another warp has brought
// and taken away, so that it does not wait for memory to take what it has computed.
#pragma once

#include <cstring>

#include "kernels/mlp/linear_gelu_tiles.cuh"

namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET {

template <class Config>
class linear_gelu_consumer {
  using T = typename Config::type;
  using subtile_sums = typename Config::subtile_sums;
  using subtile_rounded = typename Config::subtile_rounded;
  using order = typename Config::order;

 public:
  KITTENS_DEVICE linear_gelu_consumer(const linear_gelu_arguments<Config>& p,
                                      linear_gelu_shared<Config>& shared, int w)
      : p(p), shared(shared), subtiles(shared.subtiles[w]), w(w), lane(warpgroup::laneid()) {}

  KITTENS_DEVICE void consume(const block_tiles<Config>& tiles) {
    order::start(w);
    if (w > 0) skip_steps();
    for (int number = w; tiles.has(number - w); number += Config::consumers) {
      order::wait(w);
      if (!tiles.has(number)) {
        order::arrive(w);
        break;
      }
      const block_tile<Config> tile = tiles.at(number);
      if constexpr (Config::backward) {
        multiply();
        store_backward(tile);
      } else {
        const float bias = load_bias(tile.column);
        multiply();
        store_forward(bias);
      }
      skip_steps();
    }
    order::finish(w);
  }

 private:
  const linear_gelu_arguments<Config>& p;
  linear_gelu_shared<Config>& shared;
  typename Config::subtile (&subtiles)[Config::subtiles];
  const int w, lane;
  cursor<Config::stages> at;
  uint32_t phase = 0;
  typename Config::atom_sums sums[Config::atoms];

  // The other consumer's tile.
  KITTENS_DEVICE void skip_steps() {
    for (int k = 0; k < p.steps; ++k) at.advance();
  }
  KITTENS_DEVICE void meet() const { warpgroup::sync(1 + w); }
  // A warp is done with what a thread of another one copies; each of its lanes has fenced.
  KITTENS_DEVICE void arrive_by_warp(semaphore& done) const {
    arch::sync_warp();
    if (lane % 32 == 0) arrive(done);
  }

  // In turn: the next one's products follow this one's at once.
  KITTENS_DEVICE void multiply() {
    cursor<Config::stages> before = at;
    zero(sums[0]);
    zero(sums[1]);
    for (int k = 0; k < p.steps; ++k, at.advance()) {
      shared.stages.wait_full(at);
      const auto& weight =
          reinterpret_cast<const typename Config::weight_tile&>(shared.weight[at.stage]);
      warpgroup::mma_fence();
#pragma unroll
      for (int i = 0; i < Config::atoms; ++i) {
        Config::multiply(sums[i], shared.x[at.stage][i], weight);
      }
      warpgroup::mma_commit_group();
      warpgroup::mma_async_wait<1>();  // the step before has been read: tell all blocks
      if (k > 0) release(before);
      before = at;
    }
    order::arrive(w);
    warpgroup::mma_async_wait<0>(sums[0], sums[1]);
    release(before);
  }
  KITTENS_DEVICE void release(const cursor<Config::stages>& stage) {
    if (lane < Config::blocks) shared.stages.release_remote_after_mma(stage, lane);
  }

  KITTENS_DEVICE subtile_sums sums_of(int number) const {
    subtile_sums some;
    const int first = number % Config::across * (Config::subtile_columns / 2);
    std::memcpy(&some, &sums[number / Config::across].data[0][first], sizeof(some));
    return some;
  }

  // Of a column of the tile; 0 where there is none.
  KITTENS_DEVICE float load_bias(int column) const {
    const int from = column * Config::tile + lane;
    const bool is_there = p.bias != nullptr && from < p.outer;
    return is_there ? convert<float>(arch::load_global(p.bias + from)) : 0.0f;
  }

  KITTENS_DEVICE void store_forward(float bias) {
    constexpr int kWidth = Config::subtile_columns;
    // All have read the biases of the tile before: they have met at their turn since.
    arch::store_shared(&shared.bias[w][lane / kWidth].data[lane % kWidth], bias);
    meet();
#pragma unroll
    for (int number = 0; number < Config::subtiles; ++number) {
      const int first = number % 2 * 2;
      subtile_rounded rounded, active;
      typename subtile_sums::row_vec biases;
      load(biases, shared.bias[w][number % Config::across]);
      subtile_sums some = sums_of(number);
      add_col(some, some, biases);
      copy(rounded, some);
      copy(some, rounded);
#pragma unroll
      for (float& x : some.data[0]) x = Config::function::at(x).value;
      copy(active, some);
      wait(shared.there[w][first], number / 2 ^ 1);  // the first two are, from the start
      warpgroup::store_unfenced(subtiles[first], rounded);
      warpgroup::store(subtiles[first + 1], active);  // its fence is for both
      arrive_by_warp(shared.written[w][first]);
    }
  }

  KITTENS_DEVICE void store_backward(const block_tile<Config>& tile) {
#pragma unroll
    for (int number = 0; number < Config::subtiles; ++number) {
      subtile_rounded rounded;
      subtile_sums some = sums_of(number), slopes;
      wait(shared.there[w][number], phase);
      warpgroup::load(rounded, subtiles[number]);
      copy(slopes, rounded);
#pragma unroll
      for (float& x : slopes.data[0]) x = Config::function::at(x).slope;
      mul(some, some, slopes);
      copy(rounded, some);
      warpgroup::store(subtiles[number], rounded);  // its own rows, which no other warp reads
      arrive_by_warp(shared.written[w][number]);
    }
    phase ^= 1;
    meet();
    add_columns(tile);
  }

  // The sums of two columns of an atom a thread, as they are rounded.
  KITTENS_DEVICE void add_columns(const block_tile<Config>& tile) {
    constexpr int kPairs = Config::tile / 2;  // of columns
    static_assert(Config::atoms * kPairs == 128);
    const int atom = lane / kPairs, column = lane % kPairs * 2;
    const auto& from = subtiles[atom * Config::across + column / Config::subtile_columns];
    float total[2] = {};
#pragma unroll 16
    for (int r = 0; r < Config::atom_rows; ++r) {
      lane_run<T, 2> run;
      detail::run_access<T, 2>::load_shared(run, &from(r, column % Config::subtile_columns));
      float some[2];
      run.get(some);
      total[0] += some[0];
      total[1] += some[1];
    }
    arch::fence_async_proxy();  // before the copy that will overwrite the subtiles
    arrive_by_warp(shared.read[w]);
    const int first = tile.column * Config::tile + column;
    if (first >= p.outer || p.partial == nullptr) return;
    const int64_t row = tile.row * Config::atoms + atom;
    arch::store_global(reinterpret_cast<float2*>(p.partial + row * p.outer + first),
                       float2{total[0], total[1]});
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    linear_gelu(const __grid_constant__ linear_gelu_arguments<Config> p) {
  auto& s = *reinterpret_cast<linear_gelu_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    s.stages.init(Config::blocks);
    for (int w = 0; w < Config::consumers; ++w) {
      for (semaphore& there : s.there[w]) init_semaphore(there, 1);
      for (semaphore& written : s.written[w]) init_semaphore(written, Config::warps);
      init_semaphore(s.read[w], Config::warps);
    }
  }
  cluster::sync();
  const int w = warpgroupid() - 1, warp = arch::warp_id();
  const block_tiles<Config> tiles{p.tiles};
  if (w >= 0) {
    warpgroup::raise_registers<232>();
    linear_gelu_consumer<Config>(p, s, w).consume(tiles);
  } else {
    warpgroup::lower_registers<40>();
    if (arch::lane_id() == 0 && warp == Config::consumers) produce(p, s, tiles);
    if (arch::lane_id() == 0 && warp < Config::consumers) {
      epilogue_copies<Config> copies(p, s, warp);
      for (int number = warp; tiles.has(number); number += Config::consumers) {
        copies.run(tiles.at(number));
      }
    }
  }
  arch::sync_warp();
  cluster::sync();  // until then the other block may write here
}

}  // namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET
