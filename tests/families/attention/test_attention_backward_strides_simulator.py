"""Where the C++ interface lets dq, dk and dv lie, and which strides its plan refuses.

What the kernels store there: programs/attention_backward_cases.h, and the trainer's gradients,
tests/demos/test_train_gpt2_model.py.
"""

import subprocess
from pathlib import Path

import pytest

from build_tools import cpp, ops, settings, simulator
from build_tools.settings import ROOT

SOURCE = """
#include <cstdio>

#include "thunderkittens/kernels/attention.h"

namespace tk = thunderkittens;

void try_plan(const char* name, const auto& change) {
  const tk::attention_strides q{150 * 192, 192, 64}, k{150 * 64, 64, 64};
  tk::attention_backward_problem p{
      .forward = {.batch = 2, .rows = 150, .keys = 150, .heads = 3, .key_heads = 1,
                  .head_dim = 64, .value_dim = 64, .q_strides = q, .k_strides = k,
                  .v_strides = k, .scale = 0.125, .type = tk::dtype::bfloat16},
      .o_strides = q, .do_strides = q};
  change(p);
  try {
    tk::plan(p, tk::simulated_device());
    std::printf("%s: planned\\n", name);
  } catch (const tk::error& why) {
    std::printf("%s: %s\\n", name, why.what());
  }
}

int main() {
  const tk::attention_strides fused{150 * 320, 320, 64};
  try_plan("contiguous", [](auto&) {});
  try_plan("fused", [&](auto& p) { p.dq_strides = p.dk_strides = p.dv_strides = fused; });
  try_plan("odd row", [&](auto& p) { p.dq_strides = {150 * 320, 324, 64}; });
  try_plan("odd batch", [&](auto& p) { p.dk_strides = {150 * 320 + 4, 320, 64}; });
  try_plan("backwards", [&](auto& p) { p.dv_strides = {150 * 320, -320, 64}; });
  try_plan("one head", [&](auto& p) { p.dk_strides = {150 * 320, 320, 1}; });
  try_plan("bounded", [&](auto& p) { p.dv_strides = fused; p.forward.bounded_keys = true; });
  try_plan("apart", [&](auto& p) { p.dv_strides = {151 * 320, 320, 64}; });
  try_plan("bounded and apart", [&](auto& p) {
    p.dv_strides = {151 * 320, 320, 64};
    p.forward.bounded_keys = true;
  });
}
"""
ALIGNED = "attention_backward: the strides of {} must be multiples of 8, got ({})"
SAID = {
    "contiguous": "planned",
    "fused": "planned",
    "odd row": ALIGNED.format("dq", "48000, 324, 64"),
    "odd batch": ALIGNED.format("dk", "48004, 320, 64"),
    "backwards": ALIGNED.format("dv", "48000, -320, 64"),
    "one head": "planned",
    "bounded": "planned",
    "apart": "planned",
    "bounded and apart": "attention_backward: of keys with bounds, the batches of dv must lie "
    "48000 elements apart, got 48320",
}


def test_strides_of_gradients():
    lib = settings.PACKAGE / "lib"
    if not all((lib / name).is_file() for name in (ops.KERNELS, simulator.LIBRARY)):
        pytest.skip("the simulator is not built")
    source = settings.build_dir() / "generated" / "attention_backward_strides.cpp"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(SOURCE)
    program = cpp.build_program(Path(source).relative_to(ROOT), None, settings.PACKAGE)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    assert dict(line.split(": ", 1) for line in done.stdout.splitlines()) == SAID
