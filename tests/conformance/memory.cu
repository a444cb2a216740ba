// arch/memory.cuh, arch/async_copy.cuh, arch/atomic.cuh and arch/shared.cuh: loads, stores, copies
// and atomic operations of every size and type.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kittens/arch/arch.cuh"
#include "record.h"

using namespace kittens;
using namespace kittens::testing;

namespace {

constexpr int kThreads = 64;

std::vector<uint8_t> counted_bytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 37 + i / 256 + 1);
  return bytes;
}

// in → shared → the neighbour → out: plain in the first third of out, streaming in the second; in →
// out, evicted last, in the third.
template <class V>
__global__ void moves(const V* in, V* out) {
  const int i = arch::thread_id();
  V* shared = reinterpret_cast<V*>(arch::dynamic_shared());
  arch::prefetch_l2(in);
  arch::store_shared(shared + i, arch::load_global(in + i));
  arch::sync_block();
  arch::store_global(out + i, arch::load_shared(shared + (i + 1) % kThreads));
  arch::store_global_streaming(out + kThreads + i, arch::load_global_streaming(in + (i ^ 5)));
  arch::store_global(out + 2 * kThreads + i, arch::load_global_evict_last(in + (i ^ 9)));
}

template <class V>
void record_moves() {
  constexpr int kBytes = kThreads * sizeof(V);
  const buffer<uint8_t> in(counted_bytes(kBytes)), out(3 * kBytes);
  run(moves<V>, {.grid = {1}, .block = {kThreads}, .shared_bytes = kBytes},
      reinterpret_cast<const V*>(in.data()), reinterpret_cast<V*>(out.data()));
  record("load_store.bytes_" + to_text(sizeof(V)), out.get());
}

TEST(loads_and_stores) {
  record_moves<uint8_t>();
  record_moves<uint16_t>();
  record_moves<uint32_t>();
  record_moves<uint2>();
  record_moves<uint4>();
}

__global__ void shared_places(uint32_t* out) {
  uint8_t* base = arch::dynamic_shared();
  out[0] = static_cast<uint32_t>(reinterpret_cast<uint64_t>(base) % 1024);
  out[1] = arch::shared_address(base) % 1024;
  out[2] = arch::shared_address(base + 100) - arch::shared_address(base);
}

TEST(shared) {
  const buffer<uint32_t> out(3);
  run(shared_places, {.grid = {1}, .block = {1}, .shared_bytes = 1024}, out.data());
  record("shared_address", out.get());
}

// ---- cp.async

// Threads at odd places read nothing. Three groups, of which the last two may still be under way.
template <int Bytes>
__global__ void copies(const uint8_t* in, uint8_t* out) {
  const int i = arch::thread_id();
  constexpr int kGroup = kThreads * Bytes;
  uint8_t* shared = arch::dynamic_shared();
  for (int group = 0; group < 3; ++group) {
    arch::cp_async<Bytes>(shared + group * kGroup + i * Bytes, in + group * kGroup + i * Bytes,
                          (i + group) % 2 == 0);
    arch::cp_async_commit();
  }
  arch::cp_async_wait<2>();
  arch::sync_block();
  for (int k = i; k < kGroup; k += kThreads) out[k] = shared[k];
  arch::cp_async_wait<0>();
  arch::sync_block();
  for (int k = i; k < 2 * kGroup; k += kThreads) out[kGroup + k] = shared[kGroup + k];
}

template <int Bytes>
void record_copies() {
  constexpr int kAll = 3 * kThreads * Bytes;
  const buffer<uint8_t> in(counted_bytes(kAll)), out(kAll);
  run(copies<Bytes>, {.grid = {1}, .block = {kThreads}, .shared_bytes = kAll}, in.data(),
      out.data());
  record("cp_async.bytes_" + to_text(Bytes), out.get());
}

TEST(asynchronous_copies) {
  record_copies<4>();
  record_copies<8>();
  record_copies<16>();
}

// ---- atomics, by one thread: what each returns, and what it leaves

template <class T>
constexpr const char* kType = recorded_type<T>;

// Of each operation, two words: what was there, and what is there now. operands[2 i] is there,
// operands[2 i + 1] comes. words: one word of global memory, or null for shared memory.
template <class T>
__global__ void operations(const T* operands, int pairs, T* words, T* out) {
  if (words == nullptr) words = reinterpret_cast<T*>(arch::dynamic_shared());
  const auto keep = [&](T before) {
    *out++ = before;
    *out++ = *static_cast<volatile T*>(words);
  };
  for (int i = 0; i < pairs; ++i) {
    const T there = operands[2 * i], comes = operands[2 * i + 1];
    const auto put = [&] { *static_cast<volatile T*>(words) = there; };
    put();
    keep(arch::atomic_add(words, comes));
    if constexpr (!std::is_same_v<T, float>) {
      put();
      keep(arch::atomic_exchange(words, comes));
      put();
      keep(arch::atomic_cas(words, there, comes));
      put();
      keep(arch::atomic_cas(words, there, there ^ 5));  // equal if the operands are
      arch::store_release(words, comes);
      keep(arch::load_acquire(words));
      if constexpr (sizeof(T) == 4) {
        put();
        keep(arch::atomic_max(words, comes));
        put();
        keep(arch::atomic_min(words, comes));
      }
    }
  }
}

template <class T>
void record_operations(const std::string& name, const std::vector<T>& operands) {
  const int pairs = static_cast<int>(operands.size()) / 2;
  constexpr int kOperations = std::is_same_v<T, float> ? 1 : sizeof(T) == 4 ? 7 : 5;
  const buffer<T> in(operands), word(1), out(2 * kOperations * pairs);
  for (const bool shared : {false, true}) {
    run(operations<T>, {.grid = {1}, .block = {1}, .shared_bytes = 16}, in.data(), pairs,
        shared ? nullptr : word.data(), out.data());
    record("atomic." + name + (shared ? ".shared" : ".global"), out.get(), same_values());
  }
}

TEST(atomic_operations) {
  constexpr int kMost = std::numeric_limits<int>::max(), kLeast = std::numeric_limits<int>::min();
  record_operations<int>("i32", {3, 4, -3, 4, 4, -5, 7, 7, kMost, -1, kLeast, 1, -1, kMost});
  record_operations<unsigned>("u32", {3, 4, 4, 3, 7, 7, 0xffffffffu, 1, 0x80000000u, 0x7fffffffu});
  record_operations<uint64_t>(
      "u64", {3, 4, 0xffffffffu, 1, 7, 7, 0xffffffffffffffffu, 1, uint64_t{1} << 40, 5});
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  record_operations<float>("f32",
                           {1, 2, 1, 0x1p-24f, 1, 0x1.8p-24f, 1.5f, -1.5f, 0x1p127f, 0x1p127f});
  record_operations<float>(
      "f32_special", {infinity, 1, infinity, -infinity, nan, 1, 1, nan, -0.0f, 0, -0.0f, -0.0f});
  record_operations<float>("f32_subnormal", {0x1p-149f, 0x1p-149f, 0x1p-126f, -0x1p-127f,
                                             -0x1p-130f, 0, 0, -0x1p-130f, -0x1p-126f, 0x1p-127f});
}

// ---- atomics, by many threads

constexpr int kBlocks = 13, kAll = kBlocks * kThreads;

template <class T>
__global__ void adds(T* sum, T* before) {
  const int i = arch::block_x() * kThreads + arch::thread_id();
  before[i] = arch::atomic_add(sum, static_cast<T>(3));
}

// What the threads found there, in order.
template <class T>
void record_adds() {
  const buffer<T> sum(std::vector<T>{5}), before(kAll);
  run(adds<T>, {.grid = {kBlocks}, .block = {kThreads}}, sum.data(), before.data());
  std::vector<T> found = before.get();
  std::sort(found.begin(), found.end());
  found.push_back(sum.get()[0]);
  record(std::string("atomic_add.by_many.") + kType<T>, found);
}

// words: the most and the least, a count behind a lock, the lock.
__global__ void meets(int* words) {
  const int i = arch::block_x() * kThreads + arch::thread_id();
  arch::atomic_max(words, i * (i % 2 == 0 ? 1 : -1));
  arch::atomic_min(words + 1, i * (i % 2 == 0 ? 1 : -1));
  if (arch::thread_id() != 0) return;
  while (arch::atomic_cas(words + 3, 0, 1) != 0) {
  }
  arch::fence_device();
  *static_cast<volatile int*>(words + 2) = *static_cast<volatile int*>(words + 2) + 1;
  arch::fence_device();
  arch::store_release(words + 3, 0);
}

// The same in shared memory; then warp 1 waits for a message of warp 0.
__global__ void meets_in_shared(int* out) {
  int* words = reinterpret_cast<int*>(arch::dynamic_shared());
  int* flag = words + 32;
  const int i = arch::thread_id(), lane = arch::lane_id();
  if (i < 32) words[i] = 100;
  if (i == 0) *flag = 0;
  arch::sync_block();
  arch::atomic_add(words + lane % 8, i);
  arch::atomic_max(words + 8, i);
  arch::atomic_min(words + 9, i);
  arch::sync_block();
  if (i < 32) out[i] = words[i];
  arch::sync_block();
  if (arch::warp_id() == 0) {
    words[lane] = lane * lane;
    arch::fence_block();
    arch::sync_warp();
    if (lane == 0) arch::store_release(flag, 1);
  } else {
    while (arch::load_acquire(flag) == 0) {
    }
    out[32 + lane] = words[31 - lane];
  }
}

TEST(atomics_of_many) {
  record_adds<float>();
  record_adds<int>();
  record_adds<unsigned>();
  record_adds<uint64_t>();
  const buffer<int> words(std::vector<int>{0, 0, 0, 0}), out(64);
  run(meets, {.grid = {kBlocks}, .block = {kThreads}}, words.data());
  record("atomic.extremes_and_a_lock", words.get());
  run(meets_in_shared, {.grid = {1}, .block = {kThreads}, .shared_bytes = 256}, out.data());
  record("atomic.in_shared_memory", out.get());
}

}  // namespace
