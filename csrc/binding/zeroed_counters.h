// Counters in a device's memory by which the blocks of one launch share out their work, or send
// each other what they found.
#pragma once

#include <ATen/core/Tensor.h>

#include "kittens/host/device.h"

namespace thunderkittens {

struct zeroed_counters {
  int* first = nullptr;
  at::Tensor memory;  // where it is torch's: keep it until the launch has returned
};

// `count` counters that are 0 when the kernel launched next on the stream starts; the kernel must
// leave them 0. On `device`, which is the current one and that of the tensors.
//
// Each stream has some, and each captured launch gets its own: kittens/host/stream_counters.h says
// which launches share them, and why no others may. They are an array of the library, since what
// torch allocates now may belong to a memory pool of the caller's; and nobody need clear them,
// which would be a launch more (2 µs on an H200). Where there are none to have they are torch's,
// set to 0 on the stream or by the graph.
zeroed_counters find_zeroed_counters(const kittens::host::device& device, c10::Device tensors,
                                     kittens::host::stream stream, int64_t count);

}  // namespace thunderkittens
