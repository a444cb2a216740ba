// What the trainer computes of one step, for tests/demos/test_train_gpt2.py to compare.
//
//   probe IN OUT WHERE TYPE VOCABULARY POSITIONS WIDTH LAYERS HEADS BATCH MICRO_STEPS CLIP
//         [KEY_HEADS HIDDEN]
//
// The last two: a model of Llama's shape. WHERE: race, for the simulator's race mode, else what it
// is built for. IN: the parameters, and `tokens`, [micro steps, batch, positions + 1]. OUT:
// `logits` of the first micro-batch; the gradients of all as gradient.<parameter>; `results`, the
// sum of the losses of each and the gradients' norm; the parameters after two updates by these
// gradients, at the learning rates 0.01 and 0.02, as updated.<parameter> in float32, and as
// rounded.<parameter>; `verdict`, of a third one, behind a window of two.
#include <cstdio>
#include <cstdlib>

#include "data.h"
#include "model.h"

using namespace gpt2;

namespace {

struct tensors {
  std::vector<std::vector<float>> values;
  std::vector<float_tensor> named;

  void add(const std::string& name, std::vector<int64_t> shape, std::vector<float> data) {
    values.push_back(std::move(data));
    named.push_back({name, std::move(shape), values.back().data()});
  }
};

void load_tokens(model& m, queue& q, const safetensors& in) {
  const run_shape& s = m.shape();
  const int64_t rows = s.rows();
  std::vector<float> tokens(s.micro_steps * s.batch * (s.length + 1));
  in.read("tokens", {s.micro_steps, s.batch, s.length + 1}, tokens.data());
  std::vector<int> staged(s.micro_steps * token_batch::ints(rows));
  batch_sorter sorter(m.sizes().vocabulary);
  const float* from = tokens.data();
  for (int64_t i = 0; i < s.micro_steps; ++i) {
    int* const batch = staged.data() + i * token_batch::ints(rows);
    for (int64_t b = 0; b < s.batch; ++b, from += s.length + 1) {
      for (int64_t t = 0; t < s.length; ++t) {
        batch[b * s.length + t] = int(from[t]);
        batch[rows + b * s.length + t] = int(from[t + 1]);
      }
    }
    sorter.sort(batch, rows);
  }
  q.copy(m.memory().tokens, staged.data(), int64_t(staged.size()) * 4);
  q.synchronise();
}

int64_t number(const char* text) { return std::strtoll(text, nullptr, 10); }

void run(char** arguments) {
  const safetensors in(arguments[1]);
  const bool race = std::string(arguments[3]) == "race";
  const device d = race ? thunderkittens::simulated_device(true) : device_of(0);
  const dtype type = std::string(arguments[4]) == "float32" ? dtype::float32 : dtype::bfloat16;
  config c{number(arguments[5]), number(arguments[6]), number(arguments[7]), number(arguments[8]),
           number(arguments[9])};
  if (arguments[13] != nullptr) {
    c.is_llama = true;
    c.key_heads = number(arguments[13]);
    c.hidden = number(arguments[14]);
  }
  const run_shape shape{number(arguments[10]), c.positions, number(arguments[11])};
  const update_options options{.clip = std::strtod(arguments[12], nullptr),
                               .outliers = {.window = 2}};
  queue q(d);
  model m(c, shape, type, options, d, q);
  std::vector<float> weights(m.layout().total, 0.0f);
  for (const parameter& p : m.layout().all) in.read(p.name, p.shape, &weights[p.offset]);
  m.set_weights(weights);
  load_tokens(m, q, in);

  tensors out;
  out.values.reserve(4 + 3 * m.layout().all.size());
  m.evaluate();
  const int64_t padded = c.padded_vocabulary();
  out.add("logits", {shape.rows(), padded},
          to_host(q, type, m.memory().logits, shape.rows() * padded));
  for (int64_t i = 0; i < shape.micro_steps; ++i) m.train(i);
  const std::vector<float> gradients = to_host(q, type, m.memory().gradients, m.layout().total);
  const auto part = [](const std::vector<float>& all, const parameter& p) {
    const auto first = all.begin() + p.offset;
    return std::vector<float>(first, first + p.elements());
  };
  for (const parameter& p : m.layout().all) {
    out.add("gradient." + p.name, p.shape, part(gradients, p));
  }
  const auto update = [&](float rate) {
    q.copy(m.memory().learning_rate, &rate, sizeof(rate));
    m.update();
    q.synchronise();  // before the rate goes
  };
  update(0.01f);
  const auto numbers = [&] {
    return to_host(q, dtype::float32, m.memory().numbers, results(shape).floats());
  };
  out.add("results", {results(shape).floats()}, numbers());
  update(0.02f);
  const std::vector<float> exact = m.exact_weights();
  const std::vector<float> rounded = to_host(q, type, m.memory().weights, m.layout().total);
  for (const parameter& p : m.layout().all) {
    out.add("updated." + p.name, p.shape, part(exact, p));
    out.add("rounded." + p.name, p.shape, part(rounded, p));
  }
  update(0);
  std::vector<float> last = numbers();
  const float* const said = &results(shape).verdict_in(last.data())->norm;
  out.add("verdict", {4}, std::vector<float>(said, said + 4));
  write_safetensors(arguments[2], {}, out.named);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 13 && count != 15) return 2;
  try {
    run(arguments);
  } catch (const error& why) {
    std::fprintf(stderr, "%s\n", why.what());
    return 1;
  }
  return 0;
}
