// The one way from an op to a kernel: the tensors' device, that device's current stream, the
// launcher, one count. The stream comes through c10's device interface, so this file needs no CUDA
// header and the library imports where there is no CUDA.
//
// The GIL: torch releases it around the dispatcher call of every torch.ops function, so nothing
// here holds it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "binding/backend.h"

namespace thunderkittens {

// Multiprocessors of the device that `d` runs on, from which kernels derive their grids and
// workspaces.
inline int multiprocessors(const decision& d, c10::Device device) {
  return d.simulated ? kittens::host::kSimulatedMultiprocessors
                     : kittens::host::find_device(device.index())->multiprocessors;
}

// Runs the kernel of `d` (d.run is not null) on the current stream of `device`.
template <class Params>
void launch(const decision& d, const Params& params, c10::Device device) {
  try {
    if (d.simulated) {
      d.run(&params, nullptr);
    } else {
      const c10::DeviceGuard guard(device);
      const c10::impl::VirtualGuardImpl interface(device.type());
      d.run(&params, interface.getStreamNativeHandle(interface.getStream(device)));
    }
  } catch (const kittens::host::error& error) {
    TORCH_CHECK(false, d.chosen->op, ": ", error.what());
  }
  d.chosen->launchers->launches.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace thunderkittens
