"""linear_attention from C++: what its plan refuses, before any launch."""

import subprocess

import pytest

from build_tools import cpp, settings, simulator
from build_tools.settings import ROOT

PROGRAM = """\
#include <cstdio>

#include "thunderkittens/kernels/linear_attention.h"

int main() {
  using namespace thunderkittens;
  linear_attention_backward_problem p{};
  p.forward = {.batch = 1, .length = 100, .heads = 1, .key_heads = 1, .key_width = 64,
               .value_width = 64, .scale = 1, .type = dtype::bfloat16};
  for (const bool wanted : {false, true}) {
    for (const int64_t anchor : {0, 64, 128, 192, 256, 512}) {
      p.decay_gradient = wanted;
      p.anchor = anchor;
      std::printf("%d %lld: %s\\n", wanted, (long long)anchor, why_unsupported(p).c_str());
    }
  }
}
"""


def test_anchors_are_128_or_256_tokens_apart():
    """Where the decays' gradient is wanted; else nobody looks at it."""
    if not (settings.PACKAGE / "lib" / simulator.LIBRARY).is_file():
        pytest.skip("the simulator is not built")
    source = settings.build_dir() / "generated" / "linear_attention_anchors.cpp"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(PROGRAM)
    program = cpp.build_program(source.relative_to(ROOT), None, settings.PACKAGE)
    lines = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60).stdout
    said = dict(line.split(": ", 1) for line in lines.splitlines())
    assert len(said) == 12
    for anchor in (0, 64, 128, 192, 256, 512):
        assert said[f"0 {anchor}"] == ""
        refused = f"anchor must be 128 or 256, got {anchor}" if anchor not in (128, 256) else ""
        assert said[f"1 {anchor}"] == refused
