// arch/matrix.cuh: which lane gets and gives what, in every count and both orders.
#include "harness.h"
#include "kittens/arch/barrier.cuh"
#include "kittens/arch/matrix.cuh"
#include "kittens/arch/thread.cuh"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

constexpr int kWords = 64 * 32;  // shared memory of a block: 512 rows of 16 bytes
constexpr int kElements = 2 * kWords;

// Where row `row` of matrix `matrix` begins, in bytes: scattered, but each where it is alone.
KITTENS_INLINE int row_at(int matrix, int row) { return ((matrix * 8 + row) * 37 % 64) * 16; }

KITTENS_DEVICE uint8_t* own_row(int count) {
  const int lane = arch::lane_id();
  uint8_t* const shared = arch::dynamic_shared() + arch::warp_id() * 1024;
  // Lanes that point at no row may point anywhere.
  return lane < 8 * count ? shared + row_at(lane / 8, lane % 8) : arch::dynamic_shared() + 2;
}

// in: what is in shared memory; out: [warps][32][Count].
template <bool Transposed, int Count>
__global__ void loads(const uint32_t* in, uint32_t* out) {
  const int thread = arch::thread_id();
  auto* const shared = reinterpret_cast<uint32_t*>(arch::dynamic_shared());
  for (int i = thread; i < kWords; i += arch::block_threads()) shared[i] = in[i];
  arch::sync_block();
  uint32_t words[Count];
  arch::load_matrix<Transposed>(words, own_row(Count));
  for (int i = 0; i < Count; ++i) out[thread * Count + i] = words[i];
}

// The reverse: in is [warps][32][Count], out what is then in shared memory.
template <bool Transposed, int Count>
__global__ void stores(const uint32_t* in, uint32_t* out) {
  const int thread = arch::thread_id();
  auto* const shared = reinterpret_cast<uint32_t*>(arch::dynamic_shared());
  for (int i = thread; i < kWords; i += arch::block_threads()) shared[i] = 0;
  arch::sync_block();
  uint32_t words[Count];
  for (int i = 0; i < Count; ++i) words[i] = in[thread * Count + i];
  arch::store_matrix<Transposed>(own_row(Count), words);
  arch::sync_block();
  for (int i = thread; i < kWords; i += arch::block_threads()) out[i] = shared[i];
}

constexpr int kWarps = 2;

// Where the element `half` of word `word` of a thread is in shared memory, in elements.
int element_at(int thread, int word, int half, bool transposed) {
  const int line = thread % 32 / 4, place = thread % 4 * 2 + half;
  const int row = transposed ? place : line, column = transposed ? line : place;
  return thread / 32 * 512 + row_at(word, row) / 2 + column;
}

std::vector<uint32_t> pack_elements(const std::vector<uint16_t>& elements) {
  std::vector<uint32_t> words(elements.size() / 2);
  std::memcpy(words.data(), elements.data(), elements.size() * 2);
  return words;
}

// Calls f(element in registers, element in shared memory) for all of them.
template <bool Transposed, int Count, class F>
void for_each_element(F f) {
  for (int at = 0; at < kWarps * 32 * Count * 2; ++at) {
    f(at, element_at(at / (2 * Count), at / 2 % Count, at % 2, Transposed));
  }
}

std::vector<uint16_t> unpack_elements(const std::vector<uint32_t>& words) {
  std::vector<uint16_t> elements(words.size() * 2);
  std::memcpy(elements.data(), words.data(), words.size() * 4);
  return elements;
}

std::vector<uint16_t> distinct_elements(int count) {
  std::vector<uint16_t> elements;
  for (int i = 0; i < count; ++i) elements.push_back(static_cast<uint16_t>(i * 7 + 1));
  return elements;
}

constexpr host::launch_config kLaunch = {
    .grid = {1}, .block = {32 * kWarps}, .shared_bytes = 4 * kWords};

template <bool Transposed, int Count>
void check_loads() {
  const std::vector<uint16_t> shared = distinct_elements(kElements);
  const buffer<uint32_t> in(pack_elements(shared)), out(32 * kWarps * Count);
  run(loads<Transposed, Count>, kLaunch, in.data(), out.data());
  const std::vector<uint16_t> got = unpack_elements(out.get());
  for_each_element<Transposed, Count>(
      [&](int at, int from) { CHECK_EQUAL(got[at], shared[from]); });
}

template <bool Transposed, int Count>
void check_stores() {
  const std::vector<uint16_t> registers = distinct_elements(32 * kWarps * Count * 2);
  const buffer<uint32_t> in(pack_elements(registers)), out(kWords);
  run(stores<Transposed, Count>, kLaunch, in.data(), out.data());
  const std::vector<uint16_t> got = unpack_elements(out.get());
  std::vector<uint16_t> want(kElements, 0);
  for_each_element<Transposed, Count>([&](int at, int to) { want[to] = registers[at]; });
  for (int i = 0; i < kElements; ++i) CHECK_EQUAL(got[i], want[i]);
}

__global__ void transposes(const uint32_t* in, uint32_t* out) {
  out[arch::thread_id()] = arch::transpose_matrix(in[arch::thread_id()]);
}

TEST(transposes_in_registers) {
  const std::vector<uint16_t> elements = distinct_elements(kWarps * 64);
  const buffer<uint32_t> in(pack_elements(elements)), out(kWarps * 32);
  run(transposes, kLaunch, in.data(), out.data());
  const std::vector<uint16_t> got = unpack_elements(out.get());
  for (int i = 0; i < kWarps * 64; ++i) {
    const int row = i % 64 / 8, column = i % 8;
    CHECK_EQUAL(got[i], elements[i / 64 * 64 + column * 8 + row]);
  }
}

TEST(loads_1_2_and_4_matrices) {
  check_loads<false, 1>();
  check_loads<false, 2>();
  check_loads<false, 4>();
}

TEST(loads_transposed_matrices) {
  check_loads<true, 1>();
  check_loads<true, 2>();
  check_loads<true, 4>();
}

TEST(stores_1_2_and_4_matrices) {
  check_stores<false, 1>();
  check_stores<false, 2>();
  check_stores<false, 4>();
}

TEST(stores_transposed_matrices) {
  check_stores<true, 1>();
  check_stores<true, 2>();
  check_stores<true, 4>();
}

}  // namespace
