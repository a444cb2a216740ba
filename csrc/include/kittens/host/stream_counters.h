// Who has which of a device's counters (find_counters): by them the blocks of one launch share out
// their work, or send each other what they found. Plain C++, no CUDA, no torch.
//
// A kernel finds its counters 0 and leaves them 0, so launches may share them that run one after
// the other, and no others may:
//
//   a stream        has some for good. It is known by its id, not by its handle: one handle,
//                   cudaStreamPerThread, is a stream of each thread, and a new stream may have the
//                   handle of a destroyed one whose work still runs.
//   a capture       each launch gets some that no other launch ever has: in a replay it may run
//                   beside the stream's own, beside other graphs, beside other branches of its own.
//                   Replays of one executable graph come one after the other: CUDA sees to that.
//   one graph that is instantiated twice, or twice a child of another one, and replayed at the same
//                   time: both launches have the same parameters, these counters among them, as
//                   they have the same outputs and temporaries. CUDA promises nothing by which a
//                   kernel, or who chooses its parameters, could tell the two apart. Such graphs
//                   have to be replayed one after the other, or captured twice: what shares a
//                   counter leaves tiles out.
#pragma once

#include "kittens/host/launchers.h"

namespace kittens::host {

inline constexpr int kMostCounters = 512;  // of a launch: two of each of 256 multiprocessors

// `count` counters of the current device, which is `device`, for the launch that comes next on `s`.
// Null where none are left, more than kMostCounters are wanted, a stream is captured before any
// launch has looked for the device's, or CUDA does not know the stream: then the caller has to set
// counters of its own to 0 on the stream.
KITTENS_EXPORT int* find_stream_counters(int device, stream s, int64_t count);

}  // namespace kittens::host
