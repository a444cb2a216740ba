// Numbers in a device's memory by which the blocks of one launch share out their work, or send each
// other what they found.
#pragma once

#include <ATen/core/Tensor.h>

#include "binding/backend.h"

namespace thunderkittens {

struct zero_numbers {
  int* first = nullptr;
  at::Tensor memory;  // where it is torch's: keep it until the launch has returned
};

// `count` numbers that are 0 when the kernel launched next on the current stream of `device`
// starts; the kernel must leave them 0.
//
// Each stream has some, and each captured launch gets its own: kittens/host/stream_numbers.h says
// which launches share them, and why no others may. They are an array of the library, since what
// torch allocates now may belong to a memory pool of the caller's; and nobody need clear them,
// which would be a launch more (2 µs on an H200). Where there are none to have they are torch's,
// set to 0 on the stream or by the graph.
zero_numbers find_zero_numbers(const decision& d, c10::Device device, int64_t count);

}  // namespace thunderkittens
