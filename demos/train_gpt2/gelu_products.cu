// The two products beside gelu, on Hopper's tensor cores, with all that is done element by element
// behind them: what they gain over cuBLASLt's is in README.md.
//
// Two blocks are a cluster, with 128 rows of the result each and the same 128 columns: each asks
// for half of the weight's tile, which TMA puts into both. A block has two consumers, which take
// its tiles in turn: one's products run while the other is in its epilogue, at gelu (an ordered
// barrier; CUTLASS calls it ping-pong). What an epilogue reads or writes beside the sums goes
// through four subtiles of the consumer's own, 64 × 64, which a thread of another warp has brought
// and taken away, so that it does not wait for memory to take what it has computed.
#include "gelu_product_tiles.cuh"

namespace gpt2 {
namespace {

template <class Product>
class product_consumer {
 public:
  KITTENS_DEVICE product_consumer(const product_arguments<Product>& p,
                                  product_shared<Product>& shared, int w)
      : p(p), shared(shared), subtiles(shared.subtiles[w]), w(w), lane(warpgroup::laneid()) {}

  KITTENS_DEVICE void consume(const block_tiles& tiles) {
    order::start(w);
    if (w > 0) skip_steps();
    for (int number = w; tiles.has(number - w); number += kConsumers) {
      order::wait(w);
      if (!tiles.has(number)) {
        order::arrive(w);
        break;
      }
      const block_tile tile = tiles.at(number);
      float bias = 0;
      if constexpr (kIsForward<Product>) bias = load_bias(tile.column);
      multiply();
      if constexpr (kIsForward<Product>) {
        store_forward(bias);
      } else {
        store_backward(tile);
      }
      skip_steps();
    }
    order::finish(w);
  }

 private:
  const product_arguments<Product>& p;
  product_shared<Product>& shared;
  subtile (&subtiles)[kSubtiles];
  const int w, lane;
  cursor<kStages> at;
  uint32_t phase = 0;
  atom_sums sums[kAtoms];

  // The other consumer's tile.
  KITTENS_DEVICE void skip_steps() {
    for (int k = 0; k < p.steps; ++k) at.advance();
  }
  KITTENS_DEVICE void meet() const { warpgroup::sync(1 + w); }

  // In turn: the next one's products follow this one's at once.
  KITTENS_DEVICE void multiply() {
    cursor<kStages> before = at;
    zero(sums[0]);
    zero(sums[1]);
    for (int k = 0; k < p.steps; ++k, at.advance()) {
      shared.stages.wait_full(at);
      const auto& weight =
          reinterpret_cast<const typename Product::weight_tile&>(shared.weight[at.stage]);
      warpgroup::mma_fence();
#pragma unroll
      for (int i = 0; i < kAtoms; ++i) Product::multiply(sums[i], shared.x[at.stage][i], weight);
      warpgroup::mma_commit_group();
      warpgroup::mma_async_wait<1>();  // the step before has been read: tell all blocks
      if (k > 0) release(before);
      before = at;
    }
    order::arrive(w);
    warpgroup::mma_async_wait<0>(sums[0], sums[1]);
    release(before);
  }
  KITTENS_DEVICE void release(const cursor<kStages>& stage) {
    if (lane < kBlocks) shared.stages.release_remote_after_mma(stage, lane);
  }

  KITTENS_DEVICE subtile_sums sums_of(int number) const {
    subtile_sums some;
    std::memcpy(&some, &sums[number / kAcross].data[0][number % kAcross * (kSubtile / 2)],
                sizeof(some));
    return some;
  }

  // Of a column of the tile; 0 where there is none.
  KITTENS_DEVICE float load_bias(int column) const {
    const int at = column * kTile + lane;
    return at < p.columns ? convert<float>(arch::load_global(p.bias + at)) : 0.0f;
  }

  KITTENS_DEVICE void store_forward(float bias) {
    meet();  // all have read the biases of the tile before
    arch::store_shared(&shared.bias[w][lane / kSubtile].data[lane % kSubtile], bias);
    meet();
#pragma unroll
    for (int number = 0; number < kSubtiles; ++number) {
      const int first = number % 2 * 2;
      rt_bf<16, kSubtile> rounded, active;
      typename subtile_sums::row_vec biases;
      load(biases, shared.bias[w][number % kAcross]);
      subtile_sums some = sums_of(number);
      add_col(some, some, biases);
      copy(rounded, some);
      copy(some, rounded);
#pragma unroll
      for (float& x : some.data[0]) x = gelu::at(x).value;
      copy(active, some);
      wait(shared.there[w][first], number / 2 ^ 1);  // the first two are, from the start
      warpgroup::store(subtiles[first], rounded);
      warpgroup::store(subtiles[first + 1], active);
      arrive(shared.written[w][first]);
    }
  }

  KITTENS_DEVICE void store_backward(const block_tile& tile) {
#pragma unroll
    for (int number = 0; number < kSubtiles; ++number) {
      rt_bf<16, kSubtile> rounded;
      subtile_sums some = sums_of(number), slopes;
      wait(shared.there[w][number], phase);
      warpgroup::load(rounded, subtiles[number]);
      copy(slopes, rounded);
#pragma unroll
      for (float& x : slopes.data[0]) x = gelu::at(x).slope;
      mul(some, some, slopes);
      copy(rounded, some);
      warpgroup::store(subtiles[number], rounded);  // its own rows, which no other warp reads
      arrive(shared.written[w][number]);
    }
    phase ^= 1;
    meet();
    add_columns(tile);
  }

  // The sums of two columns of an atom a thread, as they are rounded.
  KITTENS_DEVICE void add_columns(const block_tile& tile) {
    constexpr int kPairs = kTile / 2;  // of columns
    static_assert(kGroup == kAtoms * kPairs);
    const int atom = lane / kPairs, column = lane % kPairs * 2;
    const subtile& from = subtiles[atom * kAcross + column / kSubtile];
    float total[2] = {};
#pragma unroll 16
    for (int r = 0; r < kAtomRows; ++r) {
      lane_run<bf16, 2> run;
      detail::run_access<bf16, 2>::load_shared(run, &from(r, column % kSubtile));
      float some[2];
      run.get(some);
      total[0] += some[0];
      total[1] += some[1];
    }
    arch::fence_async_proxy();  // before the copy that will overwrite the subtiles
    arrive(shared.read[w]);
    const int first = tile.column * kTile + column;
    if (first >= p.columns) return;
    const int64_t row = tile.row * kAtoms + atom;
    arch::store_global(reinterpret_cast<float2*>(p.partial + row * p.columns + first),
                       float2{total[0], total[1]});
  }
};

template <class Product>
__global__ void __launch_bounds__(kProductThreads, 1)
    gelu_product_kernel(const __grid_constant__ product_arguments<Product> p) {
  auto& s = *reinterpret_cast<product_shared<Product>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    s.stages.init(kBlocks);
    for (int w = 0; w < kConsumers; ++w) {
      for (semaphore& there : s.there[w]) init_semaphore(there, 1);
      for (semaphore& written : s.written[w]) init_semaphore(written, kGroup);
      init_semaphore(s.read[w], kGroup);
    }
  }
  cluster::sync();
  const int w = warpgroupid() - 1, warp = arch::warp_id();
  const block_tiles tiles{p.tiles};
  if (w >= 0) {
    warpgroup::raise_registers<232>();
    product_consumer<Product>(p, s, w).consume(tiles);
  } else {
    warpgroup::lower_registers<40>();
    if (arch::lane_id() == 0 && warp == kConsumers) produce(p, s, tiles);
    if (arch::lane_id() == 0 && warp < kConsumers) {
      epilogue_copies<Product> copies(p, s, warp);
      for (int number = warp; tiles.has(number); number += kConsumers) {
        copies.run(tiles.at(number));
      }
    }
  }
  arch::sync_warp();
  cluster::sync();  // until then the other block may write here
}

template <class Product>
void launch_product(const gelu_product& p, const void* x, const void* weight, const void* hidden,
                    void* result, const void* bias, void* partial, stream s) {
  const auto set = []<class Tile>(tma_map<Tile>& map, const void* data, int64_t rows,
                                  int64_t columns) {
    auto* const from = static_cast<bf16*>(const_cast<void*>(data));
    map = tma_map<Tile>::of(gl<bf16>::matrix(from, rows, columns, columns));
  };
  const int rows = static_cast<int>(ceil_div(p.rows, int64_t{kTile * kBlocks}));
  const int columns = static_cast<int>(ceil_div(p.outer, int64_t{kTile}));
  constexpr int kTogether = 24;
  product_arguments<Product> arguments{
      .bias = static_cast<const bf16*>(bias),
      .partial = static_cast<float*>(partial),
      .columns = static_cast<int>(p.outer),
      .steps = static_cast<int>(ceil_div(p.inner, int64_t{kDepth})),
      // Clusters that run at one time do some columns of tiles and some rows: what they read is
      // little, and is in the L2 cache.
      .tiles = {.rows = rows,
                .heads = columns,
                .together = columns < kTogether ? columns : kTogether},
  };
  set(arguments.x, x, p.rows, p.inner);
  if constexpr (kIsForward<Product>) {
    set(arguments.weight, weight, p.inner, p.outer);
  } else {
    set(arguments.weight, weight, p.outer, p.inner);
  }
  set(arguments.hidden, hidden, p.rows, p.outer);
  set(arguments.result, result, p.rows, p.outer);
  host::launch(gelu_product_kernel<Product>,
               {.grid = {host::multiprocessors() / kBlocks * kBlocks},
                .block = {kProductThreads},
                .shared_bytes = sizeof(product_shared<Product>),
                .cluster = kBlocks},
               s, arguments);
}

}  // namespace

void gelu_forward_product(const gelu_product& p, const void* x, const void* weight,
                          const void* bias, void* hidden, void* activated, stream s) {
  launch_product<forward_product>(p, x, weight, hidden, activated, bias, nullptr, s);
}

void gelu_backward_product(const gelu_product& p, const void* dy, const void* weight,
                           const void* hidden, void* gradient, void* sums, bool accumulate,
                           void* workspace, stream s) {
  launch_product<backward_product>(p, dy, weight, hidden, gradient, nullptr, workspace, s);
  add_parts(dtype::bfloat16, p.parts(), p.outer, static_cast<const float*>(workspace), sums,
            accumulate, s);
}

}  // namespace gpt2
