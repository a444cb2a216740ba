#include "sim/guards.hpp"

#include <iterator>
#include <mutex>
#include <utility>

#include "sim/api.hpp"
#include "sim/block.hpp"

namespace kittens::sim {
namespace {

struct guard_table {
  std::mutex mutex;
  std::shared_ptr<const guarded_buffers> buffers;  // replaced, never changed: launches keep theirs
};

guard_table& table() {
  static auto* const the_table = new guard_table;
  return *the_table;
}

template <class Change>
void change_guards(Change&& change) {
  guard_table& t = table();
  const std::lock_guard lock(t.mutex);
  auto changed = t.buffers ? std::make_shared<guarded_buffers>(*t.buffers)
                           : std::make_shared<guarded_buffers>();
  change(*changed);
  t.buffers = changed->empty() ? nullptr : std::move(changed);
}

std::string distance(int64_t bytes, const char* side, const guarded_buffer& b) {
  return std::to_string(bytes) + " bytes " + side + " of a buffer of " + std::to_string(b.bytes) +
         " bytes";
}

}  // namespace

void guard(const void* p, guarded_buffer b) {
  change_guards([&](guarded_buffers& all) { all[reinterpret_cast<uintptr_t>(p)] = b; });
}

void release_guards(const void* p) {
  change_guards([&](guarded_buffers& all) { all.erase(reinterpret_cast<uintptr_t>(p)); });
}

std::shared_ptr<const guarded_buffers> current_guards() {
  guard_table& t = table();
  const std::lock_guard lock(t.mutex);
  return t.buffers;
}

std::string why_guarded(const guarded_buffers& all, const void* p, int64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto after = all.upper_bound(address);  // the first buffer that starts behind p
  if (after != all.end()) {
    const auto before_start = static_cast<int64_t>(after->first - address);
    if (before_start <= after->second.guard_bytes) {
      return distance(before_start, "before the start", after->second);
    }
  }
  if (after != all.begin()) {
    const auto& [start, b] = *std::prev(after);
    const int64_t past_end = static_cast<int64_t>(address - start) + bytes - b.bytes;
    if (past_end > 0 && past_end < b.guard_bytes + bytes) {
      return distance(past_end, "past the end", b);
    }
  }
  return "";
}

void check_guards(const char* name, const void* p, int64_t bytes, call_site site) {
  // The string has a scope of its own, because fail() never returns to destroy it.
  char text[128] = "";
  {
    const std::string why = why_guarded(*self->guards, p, bytes);
    why.copy(text, sizeof text - 1);
  }
  if (text[0] == '\0') return;
  block::running().fail("MEMORY", site, "%s by thread %d: %s", name, self->thread, text);
}

}  // namespace kittens::sim

extern "C" {

// The same for Python, by ctypes.
KITTENS_EXPORT void kittens_sim_guard(const void* p, int64_t bytes, int64_t guard_bytes) {
  kittens::sim::guard(p, {bytes, guard_bytes});
}

KITTENS_EXPORT void kittens_sim_release_guards(const void* p) { kittens::sim::release_guards(p); }
}
