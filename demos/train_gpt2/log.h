// What a run says: a line a step, and log.csv.
#pragma once

#include <cstdio>
#include <string>

namespace gpt2 {

struct step_report {
  int64_t step, steps;  // step: from 1
  double loss, norm, rate, milliseconds;
  double loss_z, norm_z;  // NaN: none
  bool skipped;           // no update was made
  double share_of_peak;   // of the GPU's FLOP/s; NaN: unknown
  double seconds_left;
  int64_t tokens;
};

// log.csv of a run: step, loss, norm, lr, ms, tokens_per_second, loss_z, norm_z, skipped,
// share_of_peak, eval_loss, hellaswag. An evaluation has a row of its own; what there is none of is
// empty.
class run_log {
 public:
  // Rows of steps behind `step`, from which the run goes on, are dropped; with `again`, for it is
  // made again, that step's evaluation too.
  run_log(const std::string& out, int64_t step, bool again);
  ~run_log();
  run_log(const run_log&) = delete;
  run_log& operator=(const run_log&) = delete;

  void add(const step_report& r);
  // NaN: not found out.
  void add_evaluation(int64_t step, double loss, double answered);
  void flush() { std::fflush(file_); }

 private:
  std::FILE* file_ = nullptr;
};

void print(const step_report& r);

}  // namespace gpt2
