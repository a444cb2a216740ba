// What programs that try the trainer's kernels share: tensors on the device, arguments, errors.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bfloat16.h"
#include "files.h"
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
  void read(const safetensors& in, const char* name, const std::vector<int64_t>& shape) {
    std::vector<float> values(count_);
    in.read(name, shape, values.data());
    set(values);
  }
  std::vector<float> values() const { return to_host(queue_, type_, data_, count_); }

 private:
  queue& queue_;
  dtype type_;
  int64_t count_;
  arena memory_;
  void* data_ = nullptr;
};

inline int64_t number(const char* text) { return std::strtoll(text, nullptr, 10); }

// `where`: race, for the simulator's race mode, else what the program is built for.
inline device device_named(const std::string& where) {
  return where == "race" ? thunderkittens::simulated_device(true) : device_of(0);
}

// The program: `run` with so many arguments, its name among them. Returns the exit status.
inline int run_program(int count, char** arguments, int wanted, void (*run)(char**)) {
  if (count != wanted) return 2;
  try {
    run(arguments);
  } catch (const error& why) {
    std::fprintf(stderr, "%s\n", why.what());
    return 1;
  }
  return 0;
}

}  // namespace gpt2
