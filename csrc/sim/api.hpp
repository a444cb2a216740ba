// What kernels see of the simulator: what arch/sim and host/sim call (bulk_api.hpp has the rest).
// How it works is told in cluster.hpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

#include "kittens/host/launch_config.h"
#include "sim/guards.hpp"

namespace kittens::sim {

namespace race {
class thread;
}

// The line that called an arch function, by default. (std::source_location needs a newer clang.)
struct call_site {
  const char* file = "";
  int line = 0;

  static constexpr call_site current(const char* file = __builtin_FILE(),
                                     int line = __builtin_LINE()) {
    return {file, line};
  }
  friend bool operator==(const call_site& a, const call_site& b) {
    return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
  }
};

// The last parameter of an arch function in the simulator.
#define KITTENS_CALL_SITE ::kittens::sim::call_site site = ::kittens::sim::call_site::current()

class fact_counter;

struct position {
  int x = 0, y = 0, z = 0;
};

// What a simulated thread knows about itself.
struct thread_view {
  int thread = 0, block_threads = 0;
  position block, grid;
  int cluster_rank = 0, cluster_blocks = 1;
  uint8_t* shared = nullptr;  // [shared_bytes], aligned to 1024
  int64_t shared_bytes = 0;
  const guarded_buffers* guards = nullptr;  // of global memory; null: none
  fact_counter* facts = nullptr;            // of its cluster; null: nobody asks for them
  race::thread* race = nullptr;             // what race mode knows of it; null: it is off
  bool is_early = false;  // kernels before this one may still run: it has not waited for them
  std::span<const host::memory_range> constant;  // what they do not write, as it was promised
};

// The thread that this core runs now. One word, because it changes at each switch.
extern constinit thread_local const thread_view* self __attribute__((tls_model("initial-exec")));

// After the last call of an arch function that returns nothing: keeps the compiler from making it a
// jump, which would take the caller's line out of reports.
inline void stay_on_stack() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// ---- barriers
void sync_block(call_site site);
void named_barrier_sync(int id, int threads, call_site site);
void named_barrier_arrive(int id, int threads, call_site site);

// ---- collectives of a warp
void sync_warp(unsigned mask, call_site site);
// The bits that lane `lane` of the warp passed.
uint64_t shuffle(const char* name, uint64_t bits, int lane, call_site site);
unsigned ballot(const char* name, bool vote, call_site site);

// ---- memory
[[gnu::cold]] void report_access(const char* name, const void* p, int64_t bytes, call_site site);
[[gnu::cold]] void report_shared_access(const char* name, const void* p, int64_t bytes,
                                        call_site site);

// Whether the current launch was promised that no kernel in front of it writes there.
bool is_constant(const void* p, int64_t bytes);
// Reports an access to global memory by a thread that is early, unless it reads what is constant.
[[gnu::cold]] void check_early(const char* name, const void* p, int64_t bytes, bool writes,
                               call_site site);
[[gnu::cold]] void report_early(const char* name, call_site site);

// Counts the calling lane's part of an instruction (facts.hpp).
[[gnu::cold]] void count_lane(const char* name, const void* p, int64_t bytes, call_site site);

inline void count(const char* name, const void* p, int64_t bytes, call_site site) {
  if (self->facts != nullptr) count_lane(name, p, bytes, site);
}

// Reports an access to the guards of a buffer of global memory.
void check_guards(const char* name, const void* p, int64_t bytes, call_site site);

inline bool is_shared(const void* p) {
  const auto offset = static_cast<const uint8_t*>(p) - self->shared;
  return offset >= 0 && offset < self->shared_bytes;
}

inline bool is_valid_address(const void* p, int64_t bytes) {
  constexpr uintptr_t kNullPage = 4096;
  const auto address = reinterpret_cast<uintptr_t>(p);
  return address >= kNullPage && address % static_cast<uintptr_t>(bytes) == 0;
}

// `bytes` is a power of two, to which p must be aligned.
inline void check_address(const char* name, const void* p, int64_t bytes, bool writes,
                          call_site site) {
  if (!is_valid_address(p, bytes)) report_access(name, p, bytes, site);
  if (self->is_early) check_early(name, p, bytes, writes, site);
  if (self->guards != nullptr) check_guards(name, p, bytes, site);
  count(name, p, bytes, site);
}

inline void check_global(const char* name, const void* p, int64_t bytes, bool writes,
                         call_site site) {
  if (is_shared(p)) report_access(name, p, bytes, site);
  check_address(name, p, bytes, writes, site);
}

inline void check_shared(const char* name, const void* p, int64_t bytes, call_site site) {
  const auto offset = static_cast<const uint8_t*>(p) - self->shared;
  if (offset < 0 || offset + bytes > self->shared_bytes || offset % bytes != 0) {
    report_shared_access(name, p, bytes, site);
  }
  count(name, p, bytes, site);
}

uint32_t shared_address(const void* p, call_site site);

// Between this thread's accesses to memory before and after it.
void fence_memory();

// ---- asynchronous copies
void cp_async(void* dst, const void* src, int bytes, bool predicate, call_site site);
void cp_async_commit();
void cp_async_wait(int groups_under_way);

// ---- programmatic dependent launch
void wait_prerequisites();
void launch_dependents();

// ---- spinning: lets the others run; called wherever a loop may wait for another thread
void spin(call_site site);

// ---- launching: runs `thread(context)` as each thread of the grid. Throws host::error with the
// report when something is wrong.
using thread_function = void (*)(const void* context);
void run(const void* kernel, const host::launch_config& config, host::stream s,
         thread_function thread, const void* context);

}  // namespace kittens::sim
