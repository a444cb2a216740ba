// How fast a run is, by what its GPU could do at most, and how long it will take.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "parameters.h"
#include "thunderkittens/kernels/common.h"

namespace gpt2 {

using thunderkittens::dtype;

// Of forward and backward, a token of a sequence of that length:
//
//   6 · (vocabulary · width + layers · block)  +  6 · layers · length · width
//
// where a block has so many weights in its matrices: of GPT-2 12 · width². A weight is multiplied
// with once in the forward and twice in the backward, two operations each time. A token sees half
// of its sequence on average, by two products, three times. What is padded or computed again does
// not count.
double flops_per_token(const config& c, int64_t length);

// Dense FLOP/s of the tensor cores, of bfloat16, or of TF32 where the type is float32, as the
// maker's data sheets have them; 0: unknown. By the name that CUDA has of a GPU of Hopper's, for
// which alone the trainer is compiled.
double peak_flops(const std::string& name, dtype type);

// Bytes/s of its memory, as the data sheets have it; 0: unknown.
double peak_bytes(const std::string& name);

// "40 s", "12 min", "3 h 05 min", "2 d 07 h"
std::string shown_time(double seconds);

class speedometer {
 public:
  // flops: of a token; chip: the GPU's name; count: of them.
  speedometer(double flops, std::string chip, dtype type, int count = 1)
      : flops_(flops), chip_(std::move(chip)), count_of_(count), peak_(peak_flops(chip_, type)) {}

  // Takes in what a step took. The first one of a run is slower, and counts only as long as there
  // is no other.
  void add(double milliseconds);
  // FLOP/s by the peak; NaN: unknown.
  double share_of_peak(int64_t tokens, double milliseconds) const;
  double seconds_left(int64_t steps) const;
  // A line.
  std::string description() const;

 private:
  double flops_;
  std::string chip_;
  int count_of_;
  double peak_;     // of one
  double sum_ = 0;  // of milliseconds
  int64_t count_ = 0;
  bool only_first_ = false;
};

}  // namespace gpt2
