// The layers together: a matrix product with a producer warp, two consumer warpgroups, a ring of
// stages that TMA fills, persistent blocks and a store by TMA, in under 100 lines.
#include "tiles.h"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

template <class T>
struct config {
  static constexpr int consumers = 2, stages = 3, threads = 128 * (consumers + 1);
  using a_tile = st<T, 64, 64>;  // of one consumer
  using b_tile = st<T, 64, 96>;
  using c_tile = st<T, 64, 96>;
};

template <class T>
struct tensors {  // c [m, n] = a [m, k] · b [k, n]
  tma_map<typename config<T>::a_tile> a;
  tma_map<typename config<T>::b_tile> b;
  tma_map<typename config<T>::c_tile> c;
  tile_scheduler tiles;  // rows: of 128; heads: the columns, of 96
  int steps;             // along k
};

template <class T>
struct shared {
  typename config<T>::a_tile a[config<T>::stages][config<T>::consumers];
  typename config<T>::b_tile b[config<T>::stages];
  typename config<T>::c_tile c[config<T>::consumers];
  ring<config<T>::stages> stages;
};

template <class T>
KITTENS_DEVICE void produce(const tensors<T>& p, shared<T>& s) {
  cursor<config<T>::stages> at;
  for (tile_walk tile(p.tiles); tile.valid(); tile.next()) {
    const auto [m, n, batch] = tile.place();
    for (int k = 0; k < p.steps; ++k, at.advance()) {
      semaphore& full = s.stages.full[at.stage];
      s.stages.wait_empty(at);
      s.stages.expect(at, sizeof(s.a[0]) + sizeof(s.b[0]));
      for (int w = 0; w < config<T>::consumers; ++w) {
        tma::load_async(s.a[at.stage][w], p.a, full, {0, 0, m * config<T>::consumers + w, k});
      }
      tma::load_async(s.b[at.stage], p.b, full, {0, 0, k, n});
    }
  }
}

template <class T>
KITTENS_DEVICE void consume(const tensors<T>& p, shared<T>& s, int w) {
  const bool is_leader = arch::thread_id() % 128 == 0;
  cursor<config<T>::stages> at;
  rt_fl<16, 96> sum;
  for (tile_walk tile(p.tiles); tile.valid(); tile.next()) {
    const auto [m, n, batch] = tile.place();
    zero(sum);
    for (int k = 0; k < p.steps; ++k, at.advance()) {
      s.stages.wait_full(at);
      warpgroup::mma_fence();
      warpgroup::mma_AB(sum, s.a[at.stage][w], s.b[at.stage]);
      warpgroup::mma_commit_group();
      warpgroup::mma_async_wait();
      if (is_leader) s.stages.release_after_mma(at);
    }
    if (is_leader) tma::store_async_read_wait();  // of the tile before
    warpgroup::sync(1 + w);
    warpgroup::store(s.c[w], sum);
    warpgroup::sync(1 + w);
    if (is_leader) {
      tma::store_async(p.c, s.c[w], {0, 0, m * config<T>::consumers + w, n});
      tma::store_commit_group();
    }
  }
  if (is_leader) tma::store_async_read_wait();
}

template <class T>
__global__ void __launch_bounds__(config<T>::threads, 1)
    matmul(const __grid_constant__ tensors<T> p) {
  auto& s = *reinterpret_cast<shared<T>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) s.stages.init(config<T>::consumers);
  arch::sync_block();
  const int w = warpgroupid();
  if (w == config<T>::consumers) {
    warpgroup::lower_registers<40>();
    if (warpid() % 4 == 0 && arch::elect_one()) produce(p, s);
  } else {
    warpgroup::raise_registers<232>();
    consume(p, s, w);
  }
}

template <class T>
void check_matmul(int m, int n, int k, int blocks) {
  const auto pad = [](int x) { return (x + 7) / 8 * 8; };
  const auto values = [&](int rows, int cols, unsigned seed) {  // columns past `cols`: NaN
    std::mt19937 generator(seed);
    std::vector<T> all(static_cast<size_t>(rows) * pad(cols), convert<T>(std::nanf("")));
    for (int i = 0; i < rows * cols; ++i) {
      all[i / cols * pad(cols) + i % cols] = convert<T>(float(generator() % 9) - 4.0f);
    }
    return all;
  };
  const std::vector<T> a = values(m, k, 1), b = values(k, n, 2);
  const buffer<T> a_in(a), b_in(b), c_out(size_t(m) * pad(n));
  const auto view = [&](const buffer<T>& x, int rows, int cols) {
    return gl<T>::matrix(x.data(), rows, cols, pad(cols));
  };
  tensors<T> p{};
  p.a = decltype(p.a)::of(view(a_in, m, k));
  p.b = decltype(p.b)::of(view(b_in, k, n));
  p.c = decltype(p.c)::of(view(c_out, m, n));
  p.tiles = tile_scheduler{.rows = (m + 127) / 128, .heads = (n + 95) / 96};
  p.steps = (k + 63) / 64;
  run(matmul<T>,
      {.grid = {blocks}, .block = {config<T>::threads}, .shared_bytes = sizeof(shared<T>)}, p);
  const std::vector<T> c = c_out.get();
  for (int i = 0; i < m * n; ++i) {
    float want = 0.0f;
    for (int j = 0; j < k; ++j) {
      want += convert<float>(a[i / n * pad(k) + j]) * convert<float>(b[j * pad(n) + i % n]);
    }
    CHECK_EQUAL(convert<float>(c[i / n * pad(n) + i % n]), testing::round_to<T>(want));
  }
}

TEST(a_matrix_product) { check_matmul<bf16>(256, 192, 128, 2); }
TEST(a_product_of_one_tile) { check_matmul<half>(128, 96, 320, 1); }
TEST(a_product_with_ragged_edges) {
  check_matmul<bf16>(200, 130, 100, 3);
  check_matmul<half>(61, 97, 33, 1);
}

}  // namespace
