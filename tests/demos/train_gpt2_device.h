// A tensor on the device, for programs that try the trainer's kernels.
#pragma once

#include <vector>

#include "bfloat16.h"
#include "memory.h"

namespace gpt2 {

class on_device {
 public:
  on_device(const device& d, queue& q, dtype type, int64_t count)
      : queue_(q), type_(type), count_(count), memory_(d, place::device) {
    memory_.allocate([&] { data_ = memory_.take_bytes(count * kittens::host::bytes_of(type)); });
  }
  void* data() const { return data_; }
  void set(const std::vector<float>& values) {
    const std::vector<bfloat16> rounded(values.begin(), values.end());
    const bool exact = type_ == dtype::float32;
    queue_.copy(data_, exact ? static_cast<const void*>(values.data()) : rounded.data(),
                count_ * kittens::host::bytes_of(type_));
    queue_.synchronise();
  }
  std::vector<float> values() const { return to_host(queue_, type_, data_, count_); }

 private:
  queue& queue_;
  dtype type_;
  int64_t count_;
  arena memory_;
  void* data_ = nullptr;
};

}  // namespace gpt2
