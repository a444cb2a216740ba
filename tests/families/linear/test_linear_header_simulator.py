"""weight_is_constant of the C++ interface: the same bits, and race mode on a broken promise."""

import os
import subprocess
from pathlib import Path

import pytest

from build_tools import cpp, ops, settings, simulator
from build_tools.settings import ROOT

SOURCE = """
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "thunderkittens/kernels/linear.h"

namespace tk = thunderkittens;

constexpr int kWidth = 128, kRows = 16;
// Numbers of bf16, 1 to 2, at multiples of 16 bytes.
struct alignas(64) matrix {
  uint16_t numbers[kWidth * kWidth];
  explicit matrix(int seed) {
    for (int i = 0; i < kWidth * kWidth; ++i) numbers[i] = uint16_t(0x3f80 + i * seed % 127);
  }
};

std::string multiply(const tk::device& on, const matrix& x, const matrix& weight, matrix& y,
                     bool is_constant) {
  const tk::linear_problem p{.rows = kRows, .in_features = kWidth, .out_features = kRows,
                             .x_stride = kWidth, .weight_stride = kWidth,
                             .type = tk::dtype::bfloat16, .weight_is_constant = is_constant};
  try {
    tk::launch(tk::plan(p, on), {.x = x.numbers, .weight = weight.numbers, .y = y.numbers}, {},
               nullptr);
    return "";
  } catch (const tk::error& why) {
    return why.what();
  }
}

// With a library to load: that of race mode.
int main(int count, char** words) {
  const bool race = count > 1;
  if (race && dlopen(words[1], RTLD_NOW) == nullptr) return std::puts(dlerror());
  const tk::device on = tk::simulated_device(race);
  const matrix x(3), weight(5);
  matrix y(1), same(2);
  std::string said = multiply(on, x, weight, y, false);
  said += multiply(on, x, weight, same, true);
  const bool is_same = std::memcmp(y.numbers, same.numbers, kRows * kRows * 2) == 0;
  std::puts(is_same ? "the same bits" : "others");
  said += multiply(on, x, same, y, true);  // `same` is what the launch in front has written
  std::puts(said.c_str());
}
"""


def test_a_constant_weight():
    lib = settings.PACKAGE / "lib"
    names = (ops.KERNELS, simulator.LIBRARY, simulator.RACE_LIBRARY)
    if not all((lib / name).is_file() for name in names):
        pytest.skip("the simulator is not built")
    source = settings.build_dir() / "generated" / "linear_constant.cpp"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(SOURCE)
    program = cpp.build_program(Path(source).relative_to(ROOT), None, settings.PACKAGE)

    def run(options: str, *words: Path) -> str:
        done = subprocess.run(
            [program, *words],
            env=os.environ | {"KITTENS_SIM": options},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout

    for options in ("eager", "lazy", "random:1"):
        assert run(options) == "the same bits\n\n"
    told = run("lazy,race", lib / simulator.RACE_LIBRARY)
    assert told.startswith("the same bits\nRACE: ")
    assert "is written by no kernel that it may overlap" in told
    assert "the kernel in front of it, writes 512 of them" in told
