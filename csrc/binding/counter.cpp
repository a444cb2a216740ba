#include "binding/counter.h"

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>

namespace thunderkittens {
namespace {

// A device's counters are given away one after the other, for good.
struct device_counters {
  kittens::host::counter_array all;
  int taken = 0;
  std::map<void*, int*> by_stream;

  // Null where there is none left.
  int* take() { return taken < all.count ? all.first + taken++ : nullptr; }
};

// The counter of a stream, or, while it is being captured, of one launch. Null where there is none.
int* counter_of(c10::DeviceIndex device, void* stream, bool captured) {
  static std::mutex mutex;
  static auto* const devices = new std::map<c10::DeviceIndex, device_counters>;
  const std::lock_guard lock(mutex);
  device_counters& mine = (*devices)[device];
  if (captured) return mine.take();
  if (mine.all.count == 0) mine.all = kittens::host::find_counters();  // no call for a capture
  const auto found = mine.by_stream.find(stream);
  if (found != mine.by_stream.end()) return found->second;
  int* const own = mine.take();
  if (own != nullptr) mine.by_stream.emplace(stream, own);
  return own;
}

}  // namespace

zero_counter find_zero_counter(const decision& d, c10::Device device) {
  if (!d.simulated) {
    const c10::DeviceGuard guard(device);
    const c10::impl::VirtualGuardImpl interface(device.type());
    void* const stream = interface.getStreamNativeHandle(interface.getStream(device));
    const bool captured = kittens::host::is_capturing(stream);
    if (int* const own = counter_of(device.index(), stream, captured)) return {own, {}};
  }
  at::Tensor memory = at::zeros({1}, at::TensorOptions(device).dtype(at::kInt));
  return {memory.mutable_data_ptr<int>(), memory};
}

}  // namespace thunderkittens
