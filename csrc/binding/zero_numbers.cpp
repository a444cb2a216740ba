#include "binding/zero_numbers.h"

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>

namespace thunderkittens {
namespace {

// Of a stream: two of each of 256 multiprocessors, more than any GPU of today has.
constexpr int kOfStream = 512;

// A device's numbers are given away one after the other, for good.
struct device_numbers {
  kittens::host::counter_array all;
  int taken = 0;
  std::map<void*, int*> by_stream;

  // Null where there are not as many left.
  int* take(int count) {
    if (count > all.count - taken) return nullptr;
    taken += count;
    return all.first + taken - count;
  }
};

// The numbers of a stream, or, while it is being captured, of one launch. Null where there are
// none.
int* numbers_of(c10::DeviceIndex device, void* stream, bool captured, int count) {
  static std::mutex mutex;
  static auto* const devices = new std::map<c10::DeviceIndex, device_numbers>;
  const std::lock_guard lock(mutex);
  device_numbers& mine = (*devices)[device];
  if (captured) return mine.take(count);
  if (mine.all.count == 0) mine.all = kittens::host::find_counters();  // no call for a capture
  const auto found = mine.by_stream.find(stream);
  if (found != mine.by_stream.end()) return found->second;
  int* const own = mine.take(kOfStream);
  if (own != nullptr) mine.by_stream.emplace(stream, own);
  return own;
}

}  // namespace

zero_numbers find_zero_numbers(const decision& d, c10::Device device, int64_t count) {
  if (!d.simulated && count <= kOfStream) {
    const c10::DeviceGuard guard(device);
    const c10::impl::VirtualGuardImpl interface(device.type());
    void* const stream = interface.getStreamNativeHandle(interface.getStream(device));
    const bool captured = kittens::host::is_capturing(stream);
    int* const own = numbers_of(device.index(), stream, captured, static_cast<int>(count));
    if (own != nullptr) return {own, {}};
  }
  at::Tensor memory = at::zeros({count}, at::TensorOptions(device).dtype(at::kInt));
  return {memory.mutable_data_ptr<int>(), memory};
}

}  // namespace thunderkittens
