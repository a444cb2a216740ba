// The trainer's products beside gelu, for tests/demos/test_train_gpt2_gelu.py to compare.
//
//   gelu IN OUT WHERE ROWS INNER OUTER
//
// WHERE: race, for the simulator's race mode, else what it is built for. IN: `x` [rows, inner],
// `weight` [inner, outer], `bias` [outer]; `dy` [rows, inner], `weight_behind` [outer, inner],
// `before` [outer]. OUT: `hidden`, `activated`, `gradient` [rows, outer], `sums` and `added`
// [outer], the latter to before.
#include "thunderkittens/kernels/mlp.h"
#include "train_gpt2_device.h"

using namespace gpt2;
namespace tk = thunderkittens;

namespace {

void run(char** arguments) {
  const safetensors in(arguments[1]);
  const device d = device_named(arguments[3]);
  const int64_t rows = number(arguments[4]), inner = number(arguments[5]);
  const int64_t outer = number(arguments[6]);
  const dtype type = dtype::bfloat16;
  const auto forward = plan(tk::linear_gelu_problem{.rows = rows,
                                                    .inner = inner,
                                                    .outer = outer,
                                                    .x_stride = inner,
                                                    .weight_stride = outer,
                                                    .k_major = false,
                                                    .type = type},
                            d);
  const auto backward = plan(tk::linear_gelu_backward_problem{.rows = rows,
                                                              .inner = inner,
                                                              .outer = outer,
                                                              .dy_stride = inner,
                                                              .weight_stride = inner,
                                                              .k_major = true,
                                                              .type = type},
                             d);
  queue q(d);
  const auto tensor = [&](int64_t count) { return on_device(d, q, type, count); };
  on_device x = tensor(rows * inner), weight = tensor(inner * outer);
  on_device bias = tensor(outer), hidden = tensor(rows * outer);
  on_device activated = tensor(rows * outer), gradient = tensor(rows * outer);
  on_device sums = tensor(outer);
  on_device workspace(d, q, dtype::float32, backward.workspace.bytes / 4);
  x.read(in, "x", {rows, inner});
  weight.read(in, "weight", {inner, outer});
  bias.read(in, "bias", {outer});
  launch(forward,
         {.x = x.data(),
          .weight = weight.data(),
          .bias = bias.data(),
          .hidden = hidden.data(),
          .activated = activated.data()},
         {}, q.handle());
  x.read(in, "dy", {rows, inner});
  weight.read(in, "weight_behind", {outer, inner});
  const auto sums_of_backward = [&](bool accumulate) {
    launch(backward,
           {.dy = x.data(),
            .weight = weight.data(),
            .hidden = hidden.data(),
            .dhidden = gradient.data(),
            .dbias = sums.data(),
            .accumulate = accumulate},
           {workspace.data()}, q.handle());
    return sums.values();
  };
  const std::vector<float> alone = sums_of_backward(false);
  sums.read(in, "before", {outer});
  const std::vector<float> added = sums_of_backward(true);
  const std::vector<int64_t> shape{rows, outer};
  const std::vector<float> of_hidden = hidden.values(), of_activated = activated.values();
  const std::vector<float> of_gradient = gradient.values();
  write_safetensors(arguments[2], {},
                    {{"hidden", shape, of_hidden.data()},
                     {"activated", shape, of_activated.data()},
                     {"gradient", shape, of_gradient.data()},
                     {"sums", {outer}, alone.data()},
                     {"added", {outer}, added.data()}});
}

}  // namespace

int main(int count, char** arguments) { return run_program(count, arguments, 7, run); }
