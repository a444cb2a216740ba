#include "binding/counter.h"

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>
#include <utility>

namespace thunderkittens {
namespace {

// Which of its device's counters a stream has, in the order of their first use. Null when there are
// more streams than counters.
int* counter_of(c10::DeviceIndex device, void* stream) {
  struct device_counters {
    kittens::host::counter_array all = kittens::host::find_counters();
    std::map<void*, int> by_stream;
  };
  static std::mutex mutex;
  static auto* const devices = new std::map<c10::DeviceIndex, device_counters>;
  const std::lock_guard lock(mutex);
  device_counters& mine = (*devices)[device];
  const int next = static_cast<int>(mine.by_stream.size());
  const auto found = mine.by_stream.find(stream);
  if (found != mine.by_stream.end()) return mine.all.first + found->second;
  if (next >= mine.all.count) return nullptr;
  mine.by_stream.emplace(stream, next);
  return mine.all.first + next;
}

}  // namespace

zero_counter find_zero_counter(const decision& d, c10::Device device) {
  if (!d.simulated) {
    const c10::DeviceGuard guard(device);
    const c10::impl::VirtualGuardImpl interface(device.type());
    void* const stream = interface.getStreamNativeHandle(interface.getStream(device));
    if (!kittens::host::is_capturing(stream)) {
      if (int* const own = counter_of(device.index(), stream)) return {own, {}};
    }
  }
  at::Tensor memory = at::zeros({1}, at::TensorOptions(device).dtype(at::kInt));
  return {memory.mutable_data_ptr<int>(), memory};
}

}  // namespace thunderkittens
