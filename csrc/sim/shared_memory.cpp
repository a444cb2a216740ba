#include "sim/shared_memory.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

#include "sim/api.hpp"
#include "sim/block.hpp"

namespace kittens::sim {

void poison(uint8_t* p, int64_t bytes) {
  constexpr int64_t kWord = sizeof kPoison;
  const int64_t whole = bytes / kWord * kWord;
  for (int64_t i = 0; i < whole; i += kWord) std::memcpy(p + i, &kPoison, kWord);
  std::memcpy(p + whole, &kPoison, bytes - whole);
}

void shared_memory::release::operator()(uint8_t* p) const { std::free(p); }

shared_memory::shared_memory() {
  constexpr int64_t kBytes = kGuardBytes + host::kMaxSharedBytes + kGuardBytes;
  static_assert(kBytes % kAlignment == 0 && kGuardBytes % kAlignment == 0);
  memory_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBytes)));
  if (memory_ == nullptr) throw std::bad_alloc();
}

void shared_memory::start(int64_t bytes) {
  bytes_ = bytes;
  std::memset(memory_.get(), kGuard, kGuardBytes);
  poison(base(), bytes);
  std::memset(base() + bytes, kGuard, kGuardBytes);
}

std::optional<int64_t> shared_memory::find_damage() const {
  for (int64_t i = 0; i < kGuardBytes; ++i) {
    if (base()[bytes_ + i] != kGuard) return bytes_ + i;
    if (base()[-1 - i] != kGuard) return -1 - i;
  }
  return std::nullopt;
}

uint32_t shared_address(const void* p, call_site site) {
  const auto offset = static_cast<const uint8_t*>(p) - self->shared;
  if (offset < 0 || offset > self->shared_bytes) {
    report_shared_access("shared_address", p, 1, site);
  }
  return static_cast<uint32_t>(offset + kSharedWindowStart);
}

void report_shared_access(const char* name, const void* p, int64_t bytes, call_site site) {
  block& b = block::running();
  const int thread = self->thread;
  const auto offset = static_cast<const uint8_t*>(p) - self->shared;
  if (offset < -host::kMaxSharedBytes || offset > 2 * host::kMaxSharedBytes) {
    b.fail("SHARED MEMORY", site, "%s by thread %d: %p is not in shared memory", name, thread, p);
  }
  if (offset < 0 || offset + bytes > self->shared_bytes) {
    b.fail("SHARED MEMORY", site,
           "%s by thread %d: %lld bytes at offset %lld are outside of the block's %lld bytes", name,
           thread, static_cast<long long>(bytes), static_cast<long long>(offset),
           static_cast<long long>(self->shared_bytes));
  }
  b.fail("SHARED MEMORY", site, "%s by thread %d: offset %lld is not aligned to %lld bytes", name,
         thread, static_cast<long long>(offset), static_cast<long long>(bytes));
}

void report_access(const char* name, const void* p, int64_t bytes, call_site site) {
  block& b = block::running();
  const int thread = self->thread;
  if (is_shared(p)) {
    b.fail("MEMORY", site, "%s by thread %d: %p is in shared memory, not in global memory", name,
           thread, p);
  }
  if (reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) != 0) {
    b.fail("MEMORY", site, "%s by thread %d: address %p is not aligned to %lld bytes", name, thread,
           p, static_cast<long long>(bytes));
  }
  b.fail("MEMORY", site, "%s by thread %d: address %p is null or close to it", name, thread, p);
}

}  // namespace kittens::sim
