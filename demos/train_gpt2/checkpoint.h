// Checkpoints: folders of Hugging Face's layout, and in them what exact resuming needs.
//
//   step-00000100/
//     config.json  model.safetensors  [tokenizer.json]    the model, in float32
//     training.safetensors    exp_avg.<parameter>, exp_avg_sq.<parameter>, and the last losses and
//                             norms, outliers.losses and outliers.norms; in its metadata the step,
//                             the position in the data, and what the run must agree with
//
// A folder appears whole, by a rename.
#pragma once

#include <map>
#include <string>

#include "model.h"

namespace gpt2 {

// What a run knows beside its tensors.
struct progress {
  int64_t step = 0, sequences = 0;           // done so far
  int64_t skipped = 0;                       // steps without an update
  std::map<std::string, std::string> facts;  // seed, dtype, …: a run goes on only with the same
};

// A model's sizes in a folder's config.json, and what is written there. Throws error where it is
// not one of these formulas.
config read_config(const std::string& folder);
std::string config_text(const config& c);

// The model of a folder, in float32 at its offsets.
std::vector<float> read_weights(const std::string& folder, const parameters& p);

// The newest checkpoint of a run; throws error where there is none.
std::string newest_checkpoint(const std::string& out);
bool has_checkpoints(const std::string& out);

// Writes one, and removes all but the newest `keep`. Waits for the device. All ranks have to call
// it: rank 0 writes.
void save_checkpoint(const std::string& out, const progress& done, model& m, queue& q,
                     const std::string& tokenizer, int64_t keep);
// Sets weights, moments, and the windows of outliers; and the numbers of `done`, whose facts must
// be the saved ones, and of whose steps there are `steps` at most.
void load_checkpoint(const std::string& folder, int64_t steps, progress& done, model& m, queue& q);

}  // namespace gpt2
