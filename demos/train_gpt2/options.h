// The command line.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "model.h"
#include "sampler.h"
#include "schedule.h"

namespace gpt2 {

struct options {
  // Data
  std::string train, evaluation, hellaswag, tokenizer;
  // Model
  std::string init;  // a checkpoint to begin with
  std::string kind = "gpt2";
  config sizes;  // positions: those of the checkpoint, else --length
  std::string type = "bfloat16";
  // Recipe
  int64_t steps = 1000, batch = 8, length = 1024, total_batch = 0;
  schedule rate;
  update_options update;
  int64_t seed = 0;
  // Run
  std::string out = "runs/train_gpt2";
  bool recompute = false, graph = false, resume = false, help = false;
  int64_t device = 0, ranks = 1, log_every = 1, eval_every = 250, eval_batches = 20,
          save_every = 1000;
  int64_t keep = 2, profile = 0;
  std::string nccl = "libnccl.so.2";
  int rank = 0;  // no option: of several processes, which this is
  // Samples
  sampling_options sampling;  // its prompt is filled in: the tokens of `prompt`
  std::string prompt;
  int64_t sample_every = 250;

  std::set<std::string> given;  // the names of those that the command line has

  dtype element() const { return type == "float32" ? dtype::float32 : dtype::bfloat16; }
  run_shape shape() const {
    const int64_t micro_steps = total_batch / (batch * length * ranks);
    return {batch, length, micro_steps, recompute, static_cast<int>(ranks), rank};
  }
};

// Throws error, with what is wrong in one sentence. What depends on other options is filled in.
options parse_options(int count, char** arguments);
// Throws error where an option that is given says otherwise than the model of a checkpoint.
void check_model(const options& o, const config& checkpoint);
// A line an option.
std::string help();

}  // namespace gpt2
