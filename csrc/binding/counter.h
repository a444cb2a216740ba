// A number in a device's memory by which the blocks of one launch share out their work.
#pragma once

#include <ATen/core/Tensor.h>

#include "binding/backend.h"

namespace thunderkittens {

struct zero_counter {
  int* at = nullptr;
  at::Tensor memory;  // that it is in, where it is torch's: keep it until the launch has returned
};

// A counter that is 0 when the kernel launched next on the current stream of `device` starts; the
// kernel must leave it 0.
//
// Each stream has one, as launches on one stream do not overlap; they are an array of the library,
// since what torch allocates now may belong to a memory pool of the caller's. A captured launch may
// overlap with any other but itself: it gets one that nobody else ever has, and the graph need not
// clear it, which would be a launch more (2 µs on an H200). Where there are none left, or no eager
// call has looked for them yet, it is the graph that sets one to 0.
zero_counter find_zero_counter(const decision& d, c10::Device device);

}  // namespace thunderkittens
