#include "binding/counter.h"

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>
#include <utility>

namespace thunderkittens {
namespace {

struct counters {
  std::mutex mutex;
  std::map<std::pair<c10::DeviceIndex, void*>, at::Tensor> by_stream;
};

// Never destroyed: at exit, CUDA may be gone before us.
counters& all_counters() {
  static auto* const the_counters = new counters;
  return *the_counters;
}

at::Tensor zero(c10::Device device) {
  return at::zeros({1}, at::TensorOptions(device).dtype(at::kInt));
}

}  // namespace

at::Tensor zero_counter(const decision& d, c10::Device device) {
  if (d.simulated) return zero(device);
  const c10::DeviceGuard guard(device);
  const c10::impl::VirtualGuardImpl interface(device.type());
  void* const stream = interface.getStreamNativeHandle(interface.getStream(device));
  if (kittens::host::is_capturing(stream)) return zero(device);
  counters& all = all_counters();
  const std::lock_guard lock(all.mutex);
  at::Tensor& counter = all.by_stream[{device.index(), stream}];
  if (!counter.defined()) counter = zero(device);
  return counter;
}

}  // namespace thunderkittens
