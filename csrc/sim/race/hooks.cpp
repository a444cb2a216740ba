// What -fsanitize=thread calls in kernels at each access to memory: our own functions, in place of
// the compiler's library.
//
// With g++ they see every access but those of calls of memset and memcpy that are left as calls.
// Clang leaves more of those; from 15 on it tells of them too.
#include "sim/race/hooks.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>

#include "sim/race/race.hpp"

namespace kittens::sim::race {
namespace {

std::atomic<bool> any_instrumented = false;

[[gnu::always_inline]] inline void note(const void* address, int64_t bytes, bool writes,
                                        const void* pc) {
  const thread_view* const me = self;
  if (me == nullptr || me->race == nullptr) return;
  const auto* p = static_cast<const uint8_t*>(address);
  thread& t = *me->race;
  const bool is_inside =
      static_cast<uint64_t>(p - me->shared) < static_cast<uint64_t>(me->shared_bytes);
  if (is_inside || me->cluster_blocks > 1 || (p < t.loans_to && p + bytes > t.loans_from)) {
    t.in.access_plain(t, p, bytes, writes, pc);
  }
  const bool is_own = p >= __builtin_frame_address(0) && p < t.stack_end;
  if (writes && !is_inside && !is_own) t.in.write_global(p, bytes);
}

inline void note_atomic(const volatile void* p, int bytes, int order, bool reads, bool writes,
                        const void* pc) {
  if (self == nullptr || self->race == nullptr) return;
  const void* const word = const_cast<const void*>(p);
  if (writes && !is_shared(word)) self->race->in.write_global(word, bytes);
  self->race->atomic(word, bytes, order, reads, writes, pc);
}

}  // namespace

bool is_instrumented() { return any_instrumented; }

}  // namespace kittens::sim::race

// NOLINTBEGIN: the names and the types are the compiler's.
using kittens::sim::race::note;
using kittens::sim::race::note_atomic;

// Of the call: the next instruction may be on another line.
#define CALLER (static_cast<const char*>(__builtin_return_address(0)) - 1)

extern "C" {

void __tsan_init() { kittens::sim::race::any_instrumented = true; }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define PLAIN(bytes)                                                                     \
  void __tsan_read##bytes(void* p) { note(p, bytes, false, CALLER); }                    \
  void __tsan_write##bytes(void* p) { note(p, bytes, true, CALLER); }                    \
  void __tsan_unaligned_read##bytes(void* p) { note(p, bytes, false, CALLER); }          \
  void __tsan_unaligned_write##bytes(void* p) { note(p, bytes, true, CALLER); }          \
  void __tsan_volatile_read##bytes(void* p) { note(p, bytes, false, CALLER); }           \
  void __tsan_volatile_write##bytes(void* p) { note(p, bytes, true, CALLER); }           \
  void __tsan_unaligned_volatile_read##bytes(void* p) { note(p, bytes, false, CALLER); } \
  void __tsan_unaligned_volatile_write##bytes(void* p) { note(p, bytes, true, CALLER); }
PLAIN(1);
PLAIN(2);
PLAIN(4);
PLAIN(8);
PLAIN(16);

void __tsan_read_range(void* p, unsigned long bytes) {
  note(p, static_cast<int64_t>(bytes), false, CALLER);
}
void __tsan_write_range(void* p, unsigned long bytes) {
  note(p, static_cast<int64_t>(bytes), true, CALLER);
}

// Clang's, for what other compilers make plain accesses or library calls of.
void* __tsan_memcpy(void* to, const void* from, unsigned long bytes) {
  note(from, static_cast<int64_t>(bytes), false, CALLER);
  note(to, static_cast<int64_t>(bytes), true, CALLER);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, unsigned long bytes) {
  note(from, static_cast<int64_t>(bytes), false, CALLER);
  note(to, static_cast<int64_t>(bytes), true, CALLER);
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, unsigned long bytes) {
  note(to, static_cast<int64_t>(bytes), true, CALLER);
  return std::memset(to, value, bytes);
}

#define CHANGE(bits, type, name)                                           \
  type __tsan_atomic##bits##_##name(volatile type* p, type v, int order) { \
    note_atomic(p, sizeof(type), order, true, true, CALLER);               \
    return __atomic_##name(p, v, __ATOMIC_SEQ_CST);                        \
  }
#define EXCHANGE(bits, type, name)                                                                 \
  int __tsan_atomic##bits##_##name(volatile type* p, type* expected, type v, int order, int) {     \
    note_atomic(p, sizeof(type), order, true, true, CALLER);                                       \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
#define EXCHANGE_VALUE(bits, type)                                                           \
  type __tsan_atomic##bits##_compare_exchange_val(volatile type* p, type expected, type v,   \
                                                  int order, int) {                          \
    note_atomic(p, sizeof(type), order, true, true, CALLER);                                 \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    return expected;                                                                         \
  }
#define ATOMIC(bits, type)                                                   \
  type __tsan_atomic##bits##_load(const volatile type* p, int order) {       \
    note_atomic(p, sizeof(type), order, true, false, CALLER);                \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                             \
  }                                                                          \
  void __tsan_atomic##bits##_store(volatile type* p, type v, int order) {    \
    note_atomic(p, sizeof(type), order, false, true, CALLER);                \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                \
  }                                                                          \
  type __tsan_atomic##bits##_exchange(volatile type* p, type v, int order) { \
    note_atomic(p, sizeof(type), order, true, true, CALLER);                 \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                      \
  }                                                                          \
  CHANGE(bits, type, fetch_add)                                              \
  CHANGE(bits, type, fetch_sub)                                              \
  CHANGE(bits, type, fetch_and)                                              \
  CHANGE(bits, type, fetch_or)                                               \
  CHANGE(bits, type, fetch_xor)                                              \
  CHANGE(bits, type, fetch_nand)                                             \
  EXCHANGE(bits, type, compare_exchange_strong)                              \
  EXCHANGE(bits, type, compare_exchange_weak)                                \
  EXCHANGE_VALUE(bits, type)
ATOMIC(8, uint8_t);
ATOMIC(16, uint16_t);
ATOMIC(32, uint32_t);
ATOMIC(64, uint64_t);

void __tsan_atomic_thread_fence(int) { std::atomic_thread_fence(std::memory_order_seq_cst); }
void __tsan_atomic_signal_fence(int) {}
}
// NOLINTEND
