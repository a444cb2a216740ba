#include "kittens/host/stream_counters.h"

#include <map>
#include <mutex>

namespace kittens::host {
namespace {

// A launch that counts takes a line of the cache, so that many streams have room; one whose blocks
// all send something takes the most.
constexpr int kFew = 32;

struct stream_counters {
  int* few = nullptr;
  int* many = nullptr;
};

// A device's counters are given away one after the other, for good.
struct device_counters {
  counter_array all;
  int taken = 0;
  std::map<uint64_t, stream_counters> by_stream;  // its id

  // Null where there are not as many left.
  int* take(int count) {
    if (count > all.count - taken) return nullptr;
    taken += count;
    return all.first + taken - count;
  }
};

}  // namespace

int* find_stream_counters(int device, stream s, int64_t count) {
  static std::mutex mutex;
  static auto* const devices = new std::map<int, device_counters>;
  if (count > kMostCounters) return nullptr;
  if (is_capturing(s)) {
    const std::lock_guard lock(mutex);
    return (*devices)[device].take(static_cast<int>(count));
  }
  const std::optional<uint64_t> id = stream_id(s);
  if (!id) return nullptr;
  const std::lock_guard lock(mutex);
  device_counters& mine = (*devices)[device];
  if (mine.all.count == 0) mine.all = find_counters();  // no call for a capture
  stream_counters& own = mine.by_stream[*id];
  int*& wanted = count <= kFew ? own.few : own.many;
  if (wanted == nullptr) wanted = mine.take(count <= kFew ? kFew : kMostCounters);
  return wanted;
}

}  // namespace kittens::host
