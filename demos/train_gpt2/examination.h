// What a run finds out about its model between steps: the loss on held-out tokens, how many
// questions it answers, and what it writes.
#pragma once

#include <optional>

#include "data.h"
#include "hellaswag.h"
#include "log.h"
#include "options.h"
#include "sampler.h"
#include "token_text.h"

namespace gpt2 {

class examination {
 public:
  // first_token: what samples begin with where the options name no prompt.
  examination(const options& o, const config& c, const device& d, model& m, queue& q,
              int first_token);

  // Whether there is something to find out behind a step; `last`: of the run.
  bool is_due(int64_t step, bool last) const {
    return evaluates(step, last) || samples(step, last);
  }
  // Finds it out, prints and logs it. Waits for the device.
  void run(int64_t step, bool last, run_log& log);

  int64_t sampling_bytes() const { return sampler_ ? sampler_->bytes() : 0; }
  // A line where samples cannot be text, or none.
  std::string description() const;

 private:
  bool evaluates(int64_t step, bool last) const {
    return (held_out_ || questions_) && (last || step % options_.eval_every == 0);
  }
  bool samples(int64_t step, bool last) const {
    return sampler_ && (last || step % options_.sample_every == 0);
  }
  void forward();
  int64_t evaluated_sequences() const;
  double mean_loss();
  double share_answered();
  void sample(int64_t step);

  options options_;
  sampling_options sampling_;
  int64_t rows_;
  model& model_;
  queue& queue_;
  std::optional<dataset> held_out_;
  std::optional<hellaswag_file> questions_;
  std::optional<token_text> text_;
  std::optional<sampler> sampler_;
  batch_sorter sorter_;
  arena staging_;
  int* tokens_ = nullptr;  // a micro-batch
};

}  // namespace gpt2
