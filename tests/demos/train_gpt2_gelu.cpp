// The trainer's products beside gelu, for tests/demos/test_train_gpt2_gelu.py to compare.
//
//   gelu IN OUT WHERE ROWS INNER OUTER
//
// WHERE: race, for the simulator's race mode, else what it is built for. IN: `x` [rows, inner],
// `weight` [inner, outer], `bias` [outer]; `dy` [rows, inner], `weight_behind` [outer, inner],
// `before` [outer]. OUT: `hidden`, `activated`, `gradient` [rows, outer], `sums` and `added` [outer],
// the latter to before.
#include <cstdio>
#include <cstdlib>

#include "files.h"
#include "kernels.h"
#include "memory.h"
#include "train_gpt2_device.h"

using namespace gpt2;

namespace {

int64_t number(const char* text) { return std::strtoll(text, nullptr, 10); }

void run(char** arguments) {
  const safetensors in(arguments[1]);
  const bool race = std::string(arguments[3]) == "race";
  const device d = race ? thunderkittens::simulated_device(true) : device_of(0);
  const gelu_product p{number(arguments[4]), number(arguments[5]), number(arguments[6])};
  queue q(d);
  const auto tensor = [&](int64_t count) { return on_device(d, q, dtype::bfloat16, count); };
  const auto read = [&](const char* name, const std::vector<int64_t>& shape, on_device& to) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<float> values(count);
    in.read(name, shape, values.data());
    to.set(values);
  };
  on_device x = tensor(p.rows * p.inner), weight = tensor(p.inner * p.outer);
  on_device bias = tensor(p.outer), hidden = tensor(p.rows * p.outer);
  on_device activated = tensor(p.rows * p.outer), gradient = tensor(p.rows * p.outer);
  on_device sums = tensor(p.outer);
  on_device workspace(d, q, dtype::float32, p.workspace_bytes() / 4);
  read("x", {p.rows, p.inner}, x);
  read("weight", {p.inner, p.outer}, weight);
  read("bias", {p.outer}, bias);
  gelu_forward_product(p, x.data(), weight.data(), bias.data(), hidden.data(), activated.data(),
                       q.handle());
  read("dy", {p.rows, p.inner}, x);
  read("weight_behind", {p.outer, p.inner}, weight);
  const auto backward = [&](bool accumulate) {
    gelu_backward_product(p, x.data(), weight.data(), hidden.data(), gradient.data(), sums.data(),
                          accumulate, workspace.data(), q.handle());
    return sums.values();
  };
  const std::vector<float> alone = backward(false);
  read("before", {p.outer}, sums);
  const std::vector<float> added = backward(true);
  const std::vector<int64_t> shape{p.rows, p.outer};
  const std::vector<float> of_hidden = hidden.values(), of_activated = activated.values();
  const std::vector<float> of_gradient = gradient.values();
  write_safetensors(arguments[2], {},
                    {{"hidden", shape, of_hidden.data()},
                     {"activated", shape, of_activated.data()},
                     {"gradient", shape, of_gradient.data()},
                     {"sums", {p.outer}, alone.data()},
                     {"added", {p.outer}, added.data()}});
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 7) return 2;
  try {
    run(arguments);
  } catch (const error& why) {
    std::fprintf(stderr, "%s\n", why.what());
    return 1;
  }
  return 0;
}
