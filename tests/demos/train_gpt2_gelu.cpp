// The trainer's products beside gelu, for tests/demos/test_train_gpt2_gelu.py to compare.
//
//   gelu IN OUT WHERE ROWS INNER OUTER
//
// WHERE: race, for the simulator's race mode, else what it is built for. IN: `x` [rows, inner],
// `weight` [inner, outer], `bias` [outer]; `dy` [rows, inner], `weight_behind` [outer, inner],
// `before` [outer]. OUT: `hidden`, `activated`, `gradient` [rows, outer], `sums` and `added` [outer],
// the latter to before.
#include "kernels.h"
#include "train_gpt2_device.h"

using namespace gpt2;

namespace {

void run(char** arguments) {
  const safetensors in(arguments[1]);
  const device d = device_named(arguments[3]);
  const gelu_product p{number(arguments[4]), number(arguments[5]), number(arguments[6])};
  queue q(d);
  const auto tensor = [&](int64_t count) { return on_device(d, q, dtype::bfloat16, count); };
  on_device x = tensor(p.rows * p.inner), weight = tensor(p.inner * p.outer);
  on_device bias = tensor(p.outer), hidden = tensor(p.rows * p.outer);
  on_device activated = tensor(p.rows * p.outer), gradient = tensor(p.rows * p.outer);
  on_device sums = tensor(p.outer);
  on_device workspace(d, q, dtype::float32, p.workspace_bytes() / 4);
  x.read(in, "x", {p.rows, p.inner});
  weight.read(in, "weight", {p.inner, p.outer});
  bias.read(in, "bias", {p.outer});
  gelu_forward_product(p, x.data(), weight.data(), bias.data(), hidden.data(), activated.data(),
                       q.handle());
  x.read(in, "dy", {p.rows, p.inner});
  weight.read(in, "weight_behind", {p.outer, p.inner});
  const auto backward = [&](bool accumulate) {
    gelu_backward_product(p, x.data(), weight.data(), hidden.data(), gradient.data(), sums.data(),
                          accumulate, workspace.data(), q.handle());
    return sums.values();
  };
  const std::vector<float> alone = backward(false);
  sums.read(in, "before", {p.outer});
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

int main(int count, char** arguments) { return run_program(count, arguments, 7, run); }
