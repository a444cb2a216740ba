// Buffers of global memory with guard zones around them, which no kernel may touch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace kittens::sim {

struct guarded_buffer {
  int64_t bytes = 0;
  int64_t guard_bytes = 0;  // before, and after
};

using guarded_buffers = std::map<uintptr_t, guarded_buffer>;  // by address

// Until release_guards(p), an access of a kernel to the guards of [p, p + bytes) is reported. For
// the launches to come.
void guard(const void* p, guarded_buffer b);
void release_guards(const void* p);

// All of them, as they are now; null when there are none.
std::shared_ptr<const guarded_buffers> current_guards();

// What is wrong with an access: `4 bytes past the end of a buffer of 64 bytes`; empty when nothing.
std::string why_guarded(const guarded_buffers& all, const void* p, int64_t bytes);

}  // namespace kittens::sim
