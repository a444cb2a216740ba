"""The headers compile with the oldest CUDA that they promise to work with, without a GPU."""

import re
import sys
from pathlib import Path

import pytest

from build_tools.settings import MINIMUM_CUDA, ROOT
from build_tools.toolchain import dotted
from tests.tools.conformance import seam_functions

sys.path.insert(0, str(Path(__file__).parent))

import oldest_cuda

EVERY_INSTRUCTION = Path(__file__).with_name("every_instruction.cu")

ATTENTION = """
#include <kernels/attention/attention_forward.cuh>
namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {
using plain = attention_forward_config<bf16, 64, false, false>;
using capped = attention_forward_config<half, 128, true, true>;
template __global__ void attention_forward<plain>(
    const __grid_constant__ attention_forward_arguments<plain>);
template __global__ void attention_forward<capped>(
    const __grid_constant__ attention_forward_arguments<capped>);
}
"""


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    reason = oldest_cuda.missing()
    if reason:
        pytest.skip(reason)


def compiles(text: str, *flags: str) -> None:
    code, log = oldest_cuda.compile_for("sm_90a", text, *flags)
    assert code.startswith(b"\x7fELF"), log
    assert "warning" not in log, log


def test_every_function_of_the_seam_compiles():
    compiles(EVERY_INSTRUCTION.read_text())


def test_the_tile_layer_compiles_as_attention_uses_it():
    # Functions without __device__ are the host's, which NVRTC refuses where it is not told so.
    compiles(ATTENTION, "-DKITTENS_TARGET=sm90a", "-default-device")


def test_errors_are_seen():
    code, log = oldest_cuda.compile_for("sm_90a", '__global__ void f() { asm("wgmma.all;"); }')
    assert not code and "wgmma" in log


def test_no_function_of_the_seam_is_left_out():
    """Of those that a contract's header comment names or a twin defines."""
    text = EVERY_INSTRUCTION.read_text()
    functions = seam_functions()
    assert len(functions) > 70
    assert not [name for name in sorted(functions) if not re.search(rf"\b{name}\b", text)]


def test_the_oldest_cuda_is_the_one_that_is_documented():
    assert f"nvcc ≥ {dotted(MINIMUM_CUDA)}" in (ROOT / "README.md").read_text()
