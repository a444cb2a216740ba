// The trainer's sums of columns, for tests/demos/test_train_gpt2_sums.py to compare.
//
//   sums IN OUT WHERE TYPE ROWS WIDTH
//
// WHERE: race, for the simulator's race mode, else what it is built for. IN: `x` [rows, width],
// `wide` [rows, 2 width], `before` [width]. OUT: `sums` of x, `part`, those of the left half of
// wide, `added`, those of x added to before.
#include "thunderkittens/kernels/mlp.h"
#include "train_gpt2_device.h"

using namespace gpt2;
namespace tk = thunderkittens;

namespace {

void run(char** arguments) {
  const safetensors in(arguments[1]);
  const device d = device_named(arguments[3]);
  const dtype type = std::string(arguments[4]) == "float32" ? dtype::float32 : dtype::bfloat16;
  const int64_t rows = number(arguments[5]), width = number(arguments[6]);
  const auto whole_rows = plan(tk::column_sums_problem{rows, width, width, type}, d);
  const auto left_halves = plan(tk::column_sums_problem{rows, width, 2 * width, type}, d);
  queue q(d);
  on_device x(d, q, type, rows * width), sums(d, q, type, width);
  on_device workspace(d, q, dtype::float32, whole_rows.workspace.bytes / 4);
  on_device wide(d, q, type, 2 * rows * width);
  x.read(in, "x", {rows, width});
  wide.read(in, "wide", {rows, 2 * width});
  const auto sums_of = [&](const tk::column_sums_plan& p, on_device& matrix, bool accumulate) {
    launch(p, {matrix.data(), sums.data(), accumulate}, {workspace.data()}, q.handle());
    return sums.values();
  };
  const std::vector<float> whole = sums_of(whole_rows, x, false);
  const std::vector<float> left_half = sums_of(left_halves, wide, false);
  sums.read(in, "before", {width});
  const std::vector<float> added = sums_of(whole_rows, x, true);
  write_safetensors(arguments[2], {},
                    {{"sums", {width}, whole.data()},
                     {"part", {width}, left_half.data()},
                     {"added", {width}, added.data()}});
}

}  // namespace

int main(int count, char** arguments) { return run_program(count, arguments, 7, run); }
