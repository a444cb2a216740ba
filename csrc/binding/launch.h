// The one way from an op to a kernel: the tensors' device, that device's current stream, plan and
// launch. The stream comes through c10's device interface, so this file needs no CUDA header and
// the library imports where there is no CUDA.
//
// The GIL: torch releases it around the dispatcher call of every torch.ops function, so nothing
// here holds it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "binding/backend.h"
#include "binding/zeroed_counters.h"
#include "thunderkittens/kernels/common.h"

namespace thunderkittens {

// Who serves a call on tensors like `t`, and why.
template <class Problem>
std::string why_torch(const at::Tensor& t, const Problem& problem) {
  return t.scalar_type() == at::kDouble ? "float64 is computed by torch" : why_unsupported(problem);
}
template <class Problem>
decision decide(const kernel& wanted, const at::Tensor& t, const Problem& problem) {
  return decide(wanted, t.device(), why_torch(t, problem));
}

// The current stream of `device`, which is the current one.
inline kittens::host::stream current_stream(c10::Device device) {
  const c10::impl::VirtualGuardImpl interface(device.type());
  return interface.getStreamNativeHandle(interface.getStream(device));
}

// Runs the kernel of `d` (d.on is not null) on the current stream of its device, with a workspace
// of torch's.
template <class Problem, class Tensors>
void launch(const decision& d, const Problem& problem, const Tensors& tensors) {
  const auto run = [&](kittens::host::stream stream) {
    const auto planned = plan(problem, *d.on);
    const auto [bytes, count] = planned.workspace;
    const auto options = at::TensorOptions(d.device).dtype(at::kByte);
    const at::Tensor memory = bytes > 0 ? at::empty({bytes}, options) : at::Tensor();
    const zeroed_counters counters =
        count > 0 ? find_zeroed_counters(*d.on, d.device, stream, count) : zeroed_counters();
    const workspace work{memory.defined() ? memory.mutable_data_ptr() : nullptr, counters.first};
    launch(planned, tensors, work, stream);
  };
  try {
    if (d.on->is_simulated()) return run(nullptr);
    const c10::DeviceGuard guard(d.device);
    run(current_stream(d.device));
  } catch (const kittens::host::error& error) {
    TORCH_CHECK(false, d.chosen->op, ": ", error.what());
  }
}

}  // namespace thunderkittens
