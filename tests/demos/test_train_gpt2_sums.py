"""The trainer without Python and torch: its sums of columns."""

import os
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from trainers import DTYPES, build, succeeded

# Rows of one part and of several, whose last is short, or whose rows are no multiple of what a
# warp has in flight; widths of less than a warp's slice of a row, and of more than one.
SHAPES = [(5, 8), (200, 40), (300, 264), (1024, 96)]
CASES = [("simulator", dtype) for dtype in DTYPES]
CASES += [pytest.param("gpu", dtype, marks=pytest.mark.gpu) for dtype in DTYPES]


def sums_of(where, folder: Path, dtype: str, shape, variables: str = "") -> dict[str, torch.Tensor]:
    program = build(Path("tests/demos/train_gpt2_sums.cpp"), where)
    command = [program, folder / "in.safetensors", folder / "out.safetensors", where, dtype, *shape]
    environment = os.environ | ({"KITTENS_SIM": variables} if variables else {})
    succeeded(subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment))
    return load_file(folder / "out.safetensors")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("where", "dtype"), CASES)
def test_sums(tmp_path, where, dtype, shape):
    """A sum of n floats is off by n · 2⁻²⁴ of the sum of their sizes at most, and then rounded."""
    rows, width = shape
    torch_type, rounding = DTYPES[dtype][0], {"bfloat16": 2**-8, "float32": 2**-24}[dtype]
    generator = torch.Generator().manual_seed(rows)
    shapes = {"x": shape, "before": (width,)}
    given = {
        name: torch.randn(size, generator=generator).to(torch_type).float()
        for name, size in shapes.items()
    }
    right_half = torch.full(shape, 1e30)  # of which nothing counts
    given["wide"] = torch.cat((given["x"], right_half), 1)
    save_file(given, tmp_path / "in.safetensors")
    got = sums_of(where, tmp_path, dtype, shape)

    x, before = given["x"].double(), given["before"].double()
    slack = rows * 2**-24
    for name, want, sizes in (
        ("sums", x.sum(0), x.abs().sum(0)),
        ("added", before + x.sum(0), before.abs() + x.abs().sum(0)),
    ):
        bound = rounding * want.abs() + slack * sizes
        assert ((got[name].double() - want).abs() <= bound).all(), name
    assert torch.equal(got["part"], got["sums"])

    if where == "simulator":
        again = sums_of("race", tmp_path, dtype, shape, variables="random:3")
        assert all(torch.equal(again[name], value) for name, value in got.items())


def test_rows_behind_65536_are_in_parts_that_are_as_many(tmp_path):
    """A sum of ones is exact: no row is left out, and none counts twice."""
    shape = (65536 + 300, 8)
    ones = {"x": torch.ones(shape), "wide": torch.ones(shape[0], 2 * shape[1])}
    save_file({**ones, "before": torch.zeros(8)}, tmp_path / "in.safetensors")
    got = sums_of("simulator", tmp_path, "float32", shape)
    assert (got["sums"] == shape[0]).all()
