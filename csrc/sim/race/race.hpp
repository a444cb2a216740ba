// What the simulator tells race mode. Each of these does nothing in a launch without it.
#pragma once

#include <cstdint>

#include "sim/api.hpp"
#include "sim/race/clock.hpp"
#include "sim/race/detector.hpp"
#include "sim/race/product.hpp"

// At the start of what a kernel calls: from where, for reports.
#define KITTENS_RACE_CALL(name, site)                                      \
  if (::kittens::sim::race::thread* const t_ = ::kittens::sim::self->race) \
  t_->called = {static_cast<const char*>(__builtin_return_address(0)) - 1, name, site}

namespace kittens::sim::race {

// ---- order
inline void release(thread* t, gathering& to) {
  if (t != nullptr) t->release(to);
}
inline void acquire(thread* t, const history& from) {
  if (t != nullptr) t->acquire(from);
}

// ---- accesses of the current thread, in the arch function that it has called
inline void access(const void* p, int64_t bytes, bool writes) {
  if (thread* const t = self->race) t->in.access_call(*t, p, bytes, writes);
}
inline void write_global(const void* p, int64_t bytes) {
  if (thread* const t = self->race) t->in.write_global(p, bytes);
}
inline void access_barrier(int rank, int64_t offset, bool writes) {
  if (thread* const t = self->race) t->in.access_barrier(*t, rank, offset, writes);
}

}  // namespace kittens::sim::race
