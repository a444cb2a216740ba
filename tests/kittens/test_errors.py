"""A mistake in a kernel is a compile error that says, in a sentence, what was wrong."""

import subprocess
from pathlib import Path

import pytest

from build_tools import cxx, simulator, toolchain
from build_tools.settings import ROOT, BuildError

# sentence: what a kernel does, with the tiles and vectors declared in KERNEL below
MISTAKES = {
    "the tiles must have the same rows and columns": [
        "add(s, s, wide)",
        "copy(p, wide)",
        "mul_row(s, wide, rows)",
        "right_fill(s, wide, 3, 0.0f)",
    ],
    "the tiles must have the same layout": [
        "copy(s, s_col)",
        "max(s, s, s_col)",
        "tril(s, s_col, 0, 0.0f)",
    ],
    "the vector must have one value per row of the tile": [
        "row_max(wide_cols, wide)",
        "sub_row(wide, wide, wide_cols)",
    ],
    "the vector must have one value per column of the tile": [
        "col_sum(rows, wide)",
        "add_col(wide, wide, rows)",
    ],
    "the vector must have the layout of the tile's col_vec": [
        "mul_row(s, s, cols)",
        "row_sum(cols, s)",
        "row_max(rows, s_col)",
    ],
    "the vector must have the layout of the tile's row_vec": [
        "mul_col(s, s, rows)",
        "col_sum(rows, s)",
    ],
    "the vector must be a tile's col_vec or row_vec": ["finish_row_sum(plain)"],
    "make_causal takes a square tile": ["make_causal(wide, wide, 0.0f)"],
    "swap_layout: the tiles must have the same element type": ["swap_layout(s_col, p)"],
    "swap_layout: the tiles must have the same rows and columns": ["swap_layout(s_col, wide)"],
    "swap_layout: the tiles must have different layouts": ["swap_layout(s, s)"],
    "transpose: the tiles must have the same element type": ["transpose(s, p)"],
    "transpose: the destination must have the source's columns as its rows": [
        "transpose(wide, wide)"
    ],
    "mma: the accumulators must be float tiles": ["mm_ABt(p, p, p)"],
    "mma: the accumulators must be in row layout": ["mm_ABt(s_col, p, p)"],
    "mma: a and b must be bf16 or half tiles": ["mma_ABt(s, s, p, s)", "mm_AB(s, p, s_col)"],
    "mma: a and b must have the same element type": ["mm_ABt(s, p, h)"],
    "mma_AB, mma_ABt: a must be in row layout": ["mma_AB(s, p_col, p_col, s)"],
    "mma_AtB, mma_AtBt: a must be in column layout": ["mma_AtB(s, p, p_col, s)"],
    "mma_AB, mma_AtB: b must be in column layout": ["mma_AB(s, p, p, s)"],
    "mma_ABt, mma_AtBt: b must be in row layout": ["mma_AtBt(s, p_col, p_col, s)"],
    "mma: the inner extents of a and b must be equal": ["mm_ABt(s, p, p_wide)"],
    "mma: d must have a row per row of the product's left side": ["mm_ABt(wide, p, p)"],
    "mma: c must be a tile like d": ["mma_ABt(s, p, p, wide)"],
    "a tile's rows and columns must be multiples of 16": ["rt_fl<16, 24> odd", "st_bf<8, 64> odd"],
    "the layout of a register tile is": ["rt<float, 16, 16, ducks::st_layout::swizzle> odd"],
    "the layout of a shared tile is": ["st<float, 16, 16, ducks::rt_layout::row> odd"],
}
KERNEL = """#include "all.h"
using namespace kittens;
__global__ void kernel() {{
  [[maybe_unused]] rt_fl<16, 16> s;
  [[maybe_unused]] rt_fl<16, 16, ducks::rt_layout::col> s_col;
  [[maybe_unused]] rt_fl<16, 64> wide;
  [[maybe_unused]] rt_bf<16, 16> p;
  [[maybe_unused]] rt_bf<16, 16, ducks::rt_layout::col> p_col;
  [[maybe_unused]] rt_bf<16, 64> p_wide;
  [[maybe_unused]] rt_hf<16, 16> h;
  [[maybe_unused]] rt_fl<16, 16>::col_vec rows;
  [[maybe_unused]] rt_fl<16, 16>::row_vec cols;
  [[maybe_unused]] rt_fl<16, 64>::row_vec wide_cols;
  [[maybe_unused]] rv<float, 64> plain;
  {statement};
}}
"""
CASES = [(sentence, one) for sentence, statements in MISTAKES.items() for one in statements]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Compiles `all.h`, with all of kittens, in advance: a case then takes a tenth of a second."""
    try:
        toolkit = simulator.headers()
    except BuildError as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("headers")
    words = [toolchain.find_compiler().path, "-std=c++20", "-Wno-unknown-pragmas"]
    words += [*cxx.INCLUDES, "-I", str(folder)]
    words += ["-DKITTENS_TARGET=simulator", "-isystem", str(toolkit.include)]
    header = folder / "all.h"
    header.write_text("#include <kittens.cuh>\n")
    compiled = [*words, "-x", "c++-header", str(header), "-o", f"{header}.gch"]
    subprocess.run(compiled, cwd=ROOT, check=True)
    return [*words, "-fsyntax-only", "-x", "c++"]


def errors(command: list[str], source: Path, statement: str) -> list[str]:
    source.write_text(KERNEL.format(statement=statement))
    words = [*command, str(source)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if "error: " in line]
    assert bool(lines) == (done.returncode != 0), done.stderr
    return lines


def test_the_kernel_is_right_but_for_its_mistake(command: list[str], tmp_path: Path):
    assert not errors(command, tmp_path / "kernel.cu", "mma_ABt(s, p, p, s)")


@pytest.mark.parametrize(("sentence", "statement"), CASES, ids=[one for _, one in CASES])
def test_the_first_error_names_it(sentence: str, statement: str, command, tmp_path: Path):
    found = errors(command, tmp_path / "kernel.cu", statement)
    assert found and sentence in found[0], found
