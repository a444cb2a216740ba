#include "binding/zero_numbers.h"

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "kittens/host/stream_numbers.h"

namespace thunderkittens {

zero_numbers find_zero_numbers(const decision& d, c10::Device device, int64_t count) {
  if (!d.simulated) {
    const c10::DeviceGuard guard(device);
    const c10::impl::VirtualGuardImpl interface(device.type());
    void* const stream = interface.getStreamNativeHandle(interface.getStream(device));
    int* const own = kittens::host::find_stream_numbers(device.index(), stream, count);
    if (own != nullptr) return {own, {}};
  }
  at::Tensor memory = at::zeros({count}, at::TensorOptions(device).dtype(at::kInt));
  return {memory.mutable_data_ptr<int>(), memory};
}

}  // namespace thunderkittens
