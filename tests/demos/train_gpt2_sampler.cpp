// The trainer's sampler, a token at a time, for tests/demos/test_train_gpt2_sampler.py to compare.
//
//   sampler FOLDER WHERE TYPE OUT TOKEN…
//
// FOLDER: a checkpoint. WHERE: race, for the simulator's race mode, else what it is built for. OUT:
// `logits` [tokens, vocabulary], behind each of the tokens.
#include <cstdio>
#include <cstdlib>

#include "checkpoint.h"
#include "files.h"
#include "sampler.h"

using namespace gpt2;

namespace {

void run(int count, char** arguments) {
  const config c = read_config(arguments[1]);
  const bool race = std::string(arguments[2]) == "race";
  const device d = race ? thunderkittens::simulated_device(true) : device_of(0);
  const dtype type = std::string(arguments[3]) == "float32" ? dtype::float32 : dtype::bfloat16;
  queue q(d);
  model m(c, {.batch = 1, .length = 8}, type, {}, d, q);
  m.set_weights(read_weights(arguments[1], m.layout()));
  const int64_t tokens = count - 5;
  sampler s(m, tokens, d, q);
  std::vector<float> all;
  for (int64_t i = 0; i < tokens; ++i) {
    const std::vector<float> logits = s.logits(std::atoi(arguments[5 + i]), i);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  write_safetensors(arguments[4], {}, {{"logits", {tokens, c.vocabulary}, all.data()}});
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) return 2;
  try {
    run(count, arguments);
  } catch (const error& why) {
    std::fprintf(stderr, "%s\n", why.what());
    return 1;
  }
  return 0;
}
