// What the headers of all kernels use: where a kernel runs, and how it is found there.
//
// Each op is three calls, the same that its torch op makes:
//
//   why_unsupported(problem)                     "" when a kernel computes it
//   plan(problem, device)                        how it is computed, and the workspace it takes
//   launch(plan, tensors, workspace, stream)     asynchronous; nothing is allocated. What addresses
//                                                decide, such as how wide loads are, is chosen here
//
// A problem is sizes, strides in elements, dtypes and options; tensors are addresses. A plan may be
// kept and launched any number of times, on any streams of its device. What is refused throws
// kittens::host::error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kittens/host/device.h"
#include "kittens/host/dtype.h"
#include "kittens/host/launchers.h"

namespace thunderkittens {

using kittens::host::bound_kernel;
using kittens::host::device;
using kittens::host::dtype;
using kittens::host::error;
using kittens::host::find_device;
using kittens::host::simulated_device;
using kittens::host::stream;
using kittens::host::why_no_device;

// What a launch needs beside its tensors, on their device, until it is over; null where the plan
// asks for none.
struct workspace {
  void* memory = nullptr;   // at a multiple of 16 bytes; the launch writes it
  int* counters = nullptr;  // 0 before the launch, and 0 again when it is over. Launches that may
                            // run at the same time have some each: find_stream_counters, of
                            // kittens/host/stream_counters.h, keeps some for each stream
};
struct workspace_size {
  int64_t bytes = 0;     // of memory
  int64_t counters = 0;  // of 4 bytes
};

// What every plan begins with: throws where no kernel computes the problem.
template <class Problem>
void refuse_unsupported(std::string_view op, const Problem& problem) {
  const std::string reason = why_unsupported(problem);
  if (!reason.empty()) throw error(std::string(op) + ": " + reason);
}

// A plan that needs no more than this.
template <class Problem, class Params>
struct plain_plan {
  Problem problem;
  bound_kernel<Params> kernel;
  workspace_size workspace = {};
};

}  // namespace thunderkittens
