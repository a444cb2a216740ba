// NCCL, loaded when it is asked for: there need be none where the program is built, nor where it
// runs on one GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ranks.h"
#include "thunderkittens/kernels/common.h"

namespace gpt2 {

using thunderkittens::dtype;
using thunderkittens::stream;

// The ranks' communicator, on the current device. What it does is asynchronous and in place: `data`
// has a part of `count` elements for each rank. All ranks have to ask for the same, in one order.
class nccl {
 public:
  // Waits for all ranks. library: a path, or a name that the linker finds.
  nccl(const std::string& library, ranks& all);
  nccl(const nccl&) = delete;
  nccl& operator=(const nccl&) = delete;
  ~nccl();

  int count() const { return count_; }
  int rank() const { return rank_; }

  // This rank's part becomes the sum of what all have there; the other parts are spoilt.
  void sum_parts(void* data, int64_t count, dtype type, stream s) const;
  // Every rank's part comes to all.
  void gather_parts(void* data, int64_t count, dtype type, stream s) const;

 private:
  struct functions;

  void check(int status, const char* doing) const;
  void* own_part(void* data, int64_t count, dtype type) const;

  int rank_, count_;
  std::unique_ptr<const functions> library_;
  void* communicator_ = nullptr;
};

}  // namespace gpt2
