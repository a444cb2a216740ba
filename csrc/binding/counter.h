// A number in a device's memory by which the blocks of one launch share out their work.
#pragma once

#include <ATen/core/Tensor.h>

#include "binding/backend.h"

namespace thunderkittens {

// A single int32 that is 0 when the kernel launched next on the current stream of `device` starts;
// the kernel must leave it 0. Keep the tensor until the launch has returned.
//
// Each stream has one, as launches on one stream do not overlap. A captured launch may: it gets its
// own, and the graph sets that to 0.
at::Tensor zero_counter(const decision& d, c10::Device device);

}  // namespace thunderkittens
