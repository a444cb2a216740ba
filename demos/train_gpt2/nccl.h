// NCCL, loaded when it is asked for: there need be none where the program is built, nor where it
// runs on one GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ranks.h"
#include "thunderkittens/kernels/common.h"

namespace gpt2 {

using thunderkittens::dtype;
using thunderkittens::stream;

// The ranks' communicator, on the current device. What it does is asynchronous, on data that has a
// part of `count` elements for each rank. All ranks have to ask for the same, in one order.
//
// Between GPUs that reach each other's memory the GPUs' copy engines do it, where the data lies in
// memory of `allocate`: no multiprocessor is taken from the kernels beside it, also not while one
// rank waits for another (NCCL's "zero CTA" policy, since 2.28).
class nccl {
 public:
  // Waits for all ranks. library: a path, or a name that the linker finds.
  nccl(const std::string& library, ranks& all);
  nccl(const nccl&) = delete;
  nccl& operator=(const nccl&) = delete;
  ~nccl();

  int count() const { return count_; }
  int rank() const { return rank_; }

  // Device memory, of the same size in all ranks; it lives as long as this.
  void* allocate(int64_t bytes);

  // From each rank its part for this one, to the place of that rank in `to`.
  void exchange_parts(const void* from, void* to, int64_t count, dtype type, stream s) const;
  // Every rank's part comes to all, in place.
  void gather_parts(void* data, int64_t count, dtype type, stream s) const;

 private:
  struct functions;

  void check(int status, const char* doing) const;

  int rank_, count_;
  std::unique_ptr<const functions> library_;
  void* communicator_ = nullptr;
  std::vector<void*> memories_, windows_;
};

}  // namespace gpt2
