"""mamba2 from C++: where its kernel makes the gates itself, before any launch."""

import subprocess

import pytest

from build_tools import cpp, settings, simulator
from build_tools.settings import ROOT

PROGRAM = """\
#include <cstdio>

#include "thunderkittens/kernels/mamba2.h"

using namespace thunderkittens;

static void print(const char* what, const mamba2_problem& p, bool generic = false) {
  const device d = kittens::host::simulated_device(false, generic);
  const linear_attention_plan scan = plan(p, d).scan;
  std::printf("%s: %d %d %d\\n", what, makes_gates(p, d), scan.problem.makes_gates,
              scan.warp_specialized);
}

int main() {
  const mamba2_problem pairs = {.batch = 1000, .length = 100, .heads = 4, .groups = 2,
                                .state_width = 64, .head_width = 64, .type = dtype::bfloat16,
                                .dt_type = dtype::bfloat16, .dt_in_words = true};
  mamba2_problem p = pairs;
  print("pairs", p);
  print("generic", p, true);
  (p = pairs).batch = 1;
  print("few", p);
  (p = pairs).dt_in_words = false;
  print("dt not in words", p);
  (p = pairs).groups = 4;
  print("a group of each head", p);
  (p = pairs).heads = 6;
  print("groups of three", p);
  (p = pairs).state_width = 72;
  print("wide states", p);
  (p = pairs).head_width = 128;
  print("wide heads", p);
  (p = pairs).type = dtype::float16;
  print("fp16", p);
  (p = pairs).sequences = 1;
  print("packed", p);
}
"""


def test_gates_are_made_for_pairs_of_heads_alone():
    """Of one group, narrow, of bf16, not packed, and by Hopper's kernels; few are specialized."""
    if not (settings.PACKAGE / "lib" / simulator.LIBRARY).is_file():
        pytest.skip("the simulator is not built")
    source = settings.build_dir() / "generated" / "mamba2_makes_gates.cpp"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(PROGRAM)
    program = cpp.build_program(source.relative_to(ROOT), None, settings.PACKAGE)
    lines = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60).stdout
    said = dict(line.split(": ") for line in lines.splitlines())
    assert said.pop("pairs") == "1 1 0"
    assert said.pop("few") == "1 1 1"
    assert len(said) == 8
    assert set(said.values()) == {"0 0 0"}
