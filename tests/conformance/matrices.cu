// arch/matrix.cuh and arch/mma.cuh: which lane gets and gives what; products of one warp.
#include <cmath>
#include <limits>

#include "kittens/arch/arch.cuh"
#include "record.h"

using namespace kittens;
using namespace kittens::testing;

namespace {

// ---- ldmatrix and stmatrix

constexpr int kWords = 64 * 32;  // shared memory of a block: 512 rows of 16 bytes
constexpr int kWarps = 2;
constexpr host::launch_config kLaunch = {
    .grid = {1}, .block = {32 * kWarps}, .shared_bytes = 4 * kWords};

// The row that this lane points at: scattered, but each where it is alone.
KITTENS_DEVICE uint8_t* own_row(int count) {
  const int lane = arch::lane_id();
  uint8_t* const shared = arch::dynamic_shared() + arch::warp_id() * 1024;
  return lane < 8 * count ? shared + lane * 37 % 64 * 16 : arch::dynamic_shared();
}

template <bool Transposed, int Count>
__global__ void loads(uint32_t* out) {
  const int thread = arch::thread_id();
  auto* const shared = reinterpret_cast<uint16_t*>(arch::dynamic_shared());
  for (int i = thread; i < 2 * kWords; i += 32 * kWarps) shared[i] = static_cast<uint16_t>(7 * i);
  arch::sync_block();
  uint32_t words[Count];
  arch::load_matrix<Transposed>(words, own_row(Count));
  for (int i = 0; i < Count; ++i) out[thread * Count + i] = words[i];
}

template <bool Transposed, int Count>
__global__ void stores(uint32_t* out) {
  const int thread = arch::thread_id();
  auto* const shared = reinterpret_cast<uint32_t*>(arch::dynamic_shared());
  for (int i = thread; i < kWords; i += 32 * kWarps) shared[i] = 0;
  arch::sync_block();
  uint32_t words[Count];
  for (int i = 0; i < Count; ++i) words[i] = 0x10001u * (thread * 8 + i * 2) + 0x10000u;
  arch::store_matrix<Transposed>(own_row(Count), words);
  arch::sync_block();
  for (int i = thread; i < kWords; i += 32 * kWarps) out[i] = shared[i];
}

template <bool Transposed, int Count>
void record_matrices() {
  const buffer<uint32_t> loaded(32 * kWarps * Count), stored(kWords);
  run(loads<Transposed, Count>, kLaunch, loaded.data());
  run(stores<Transposed, Count>, kLaunch, stored.data());
  const std::string form = ".x" + to_text(Count) + (Transposed ? ".transposed" : "");
  record("load_matrix" + form, loaded.get());
  record("store_matrix" + form, stored.get());
}

TEST(forms_of_matrices) {
  static_assert(arch::kHasStoreMatrix);
  record_matrices<false, 1>();
  record_matrices<false, 2>();
  record_matrices<false, 4>();
  record_matrices<true, 1>();
  record_matrices<true, 2>();
  record_matrices<true, 4>();
}

// ---- mma

constexpr int kRows = 16, kColumns = 8, kDepth = 16;

// One product per warp, of what lies in memory as the lanes hold it: a [warps][32][4],
// b [warps][32][2], c and d [warps][32][4].
template <class T>
__global__ void products(const uint32_t* a, const uint32_t* b, const float* c, float* d) {
  const int i = arch::thread_id();
  const uint32_t left[4] = {a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]};
  const uint32_t right[2] = {b[2 * i], b[2 * i + 1]};
  const float addend[4] = {c[4 * i], c[4 * i + 1], c[4 * i + 2], c[4 * i + 3]};
  float sum[4];
  arch::mma_m16n8k16<T>(sum, left, right, addend);
  for (int k = 0; k < 4; ++k) d[4 * i + k] = sum[k];
}

template <class T>
std::vector<uint32_t> words_of(const std::vector<float>& values) {
  const std::vector<T> elements = narrow<T>(values);
  std::vector<uint32_t> words(elements.size() / 2);
  std::memcpy(words.data(), elements.data(), 4 * words.size());
  return words;
}

template <class T>
std::vector<float> multiply(const std::vector<float>& a, const std::vector<float>& b,
                            const std::vector<float>& c) {
  const buffer<uint32_t> left(words_of<T>(a)), right(words_of<T>(b));
  const buffer<float> addend(c), sum(c.size());
  run(products<T>, {.grid = {1}, .block = {static_cast<int64_t>(c.size()) / 4}}, left.data(),
      right.data(), addend.data(), sum.data());
  return sum.get();
}

template <class T>
const std::string kName = std::string("mma.") + recorded_type<T> + ".";

template <class T>
void record_products() {
  constexpr int kProducts = 3;
  constexpr int kSums = kProducts * kRows * kColumns;
  const auto integers = [](int count, unsigned seed) {
    std::vector<float> values = random_values(count, seed);
    for (float& x : values) x = std::floor(8 * x);
    return values;
  };
  const std::vector<float> zeros(kSums, 0.0f);
  const int left = kProducts * kRows * kDepth, right = kProducts * kDepth * kColumns;
  record(kName<T> + "exact", multiply<T>(integers(left, 1), integers(right, 2), zeros));
  record(kName<T> + "exact_plus",
         multiply<T>(integers(left, 3), integers(right, 4), integers(kSums, 5)));
  // |a|, |b|, |c| ≤ 1
  record(kName<T> + "rounded",
         multiply<T>(random_values(left, 6), random_values(right, 7), random_values(kSums, 8)),
         within_products(1, kDepth + 1));
}

// As wgmma's: 1 + (i + 1)·2^-27 by one product, by 16; with a minus. Lane 4·g holds row g.
template <class T>
void record_truncation() {
  std::vector<float> a(4 * kRows * kDepth, 0.0f);
  for (int i = 0; i < 4 * kRows * kDepth; ++i) {
    const int warp = i / (kRows * kDepth), lane = i / 8 % 32, word = i / 2 % 4;
    const int row = lane / 4 + word % 2 * 8, column = lane % 4 * 2 + word / 2 * 8 + i % 2;
    if (warp % 2 == 0 && column != 0) continue;
    a[i] = std::ldexp(static_cast<float>(row + 1), -14) * (warp < 2 ? 1.0f : -1.0f);
  }
  const std::vector<float> b(4 * kDepth * kColumns, 0x1p-13f), c(4 * kRows * kColumns, 1.0f);
  record(kName<T> + "truncation", every(2, multiply<T>(a, b, c)),
         within_products(1, 1 + 16 * 16 * 0x1p-27));
}

// One product in each row, but for the rows that say otherwise.
template <class T>
void record_specials(float largest, float tiny, float factor) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const float firsts[kRows] = {nan,     infinity, -infinity, infinity, largest, -largest,
                               largest, tiny,     -tiny,     tiny,     0,       -0.0f};
  const float seconds[kRows] = {0, 0, 0, -infinity, 0, 0, largest, 0, 0, tiny, 0, 0};
  std::vector<float> a(kRows * kDepth, 0.0f);
  for (int i = 0; i < kRows * kDepth; ++i) {
    const int lane = i / 8, word = i / 2 % 4;
    const int row = lane / 4 + word % 2 * 8, column = lane % 4 * 2 + word / 2 * 8 + i % 2;
    if (column == 0) a[i] = firsts[row];
    if (column == 5) a[i] = seconds[row];
  }
  for (const float f : {1.0f, factor}) {
    record(kName<T> + "special.times_" + to_text(f),
           every(2, multiply<T>(a, std::vector<float>(kDepth * kColumns, f),
                                std::vector<float>(kRows * kColumns, 0.0f))),
           same_values());
  }
}

TEST(products_of_a_warp) {
  record_products<__nv_bfloat16>();
  record_products<__half>();
  record_truncation<__nv_bfloat16>();
  record_truncation<__half>();
  record_specials<__nv_bfloat16>(0x1.fep127f, 0x1p-133f, 0x1p-1f);
  record_specials<__half>(65504.0f, 0x1p-24f, 0x1p-24f);
}

}  // namespace
