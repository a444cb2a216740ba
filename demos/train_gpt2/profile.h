// Where the time of a step goes, part by part: --profile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory.h"

namespace gpt2 {

// A part of a step, and what it has to do at least: operations of the tensor cores, or, where there
// are none, bytes that it reads and writes.
struct part {
  const char* name;
  double flops, bytes;
};

class profile {
 public:
  explicit profile(queue& q) : watch_(q) {}

  // What the queue is given from now on is of that part, until the next begins.
  void begin(const part& p);
  void end_step();
  int64_t steps() const { return steps_; }

  // Once the work is done: a line a part, those that take the longest first, as a table and as the
  // rows of a CSV file. The peaks, of FLOP/s and bytes/s, are 0 where they are unknown.
  std::string table(double peak_flops, double peak_bytes) const;
  void write(const std::string& path, double peak_flops, double peak_bytes) const;

 private:
  struct row {
    part what;        // of all its launches in a step
    double launches;  // in a step; one may be of several kernels
    double milliseconds;
  };
  std::vector<row> rows() const;

  stopwatch watch_;
  std::vector<part> parts_;  // one more point than parts lies between them
  int64_t steps_ = 0;
};

}  // namespace gpt2
