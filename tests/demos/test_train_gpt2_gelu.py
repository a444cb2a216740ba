"""The trainer without Python and torch: the products beside gelu."""

import os
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from trainers import build, succeeded

# rows, inner, outer: less than a tile, and several tiles each way of which the last is short; of
# one step along the inner width, of fewer than the ring has stages, and of more, whose last is
# short; and more tiles than the simulated device has blocks at a time.
SHAPES = [(5, 8, 16), (300, 136, 264), (64, 456, 72), (130, 64, 600), (2200, 64, 264)]
CASES = ["simulator", pytest.param("gpu", marks=pytest.mark.gpu)]
LARGE = pytest.param((8200, 768, 3072), marks=pytest.mark.gpu)


def products_of(where, folder: Path, shape, variables: str = "") -> dict[str, torch.Tensor]:
    program = build(Path("tests/demos/train_gpt2_gelu.cpp"), where)
    command = [program, folder / "in.safetensors", folder / "out.safetensors", where, *shape]
    environment = os.environ | ({"KITTENS_SIM": variables} if variables else {})
    succeeded(subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment))
    return load_file(folder / "out.safetensors")


@pytest.mark.parametrize("shape", [*SHAPES, LARGE], ids=str)
@pytest.mark.parametrize("where", CASES)
def test_products_beside_gelu(tmp_path, where, shape):
    """Within what the sums and the roundings lose.

    A sum of n products and a bias is off by (n + 1) · 2⁻²³ of the sum of their sizes at most (the
    tensor cores add with fewer bits than float32 has), and then rounded. gelu, of hidden as it is
    rounded, and its slope, below 1.2, are off by 2⁻¹⁴ of their size and of 1.2; what is multiplied
    with the slope is rounded before, too.
    """
    if where == "simulator" and shape == (8200, 768, 3072):
        pytest.skip("42 billion multiplications are for a GPU")
    rows, inner, outer = shape
    generator = torch.Generator().manual_seed(rows)

    def random(*size: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(size, generator=generator) * scale).bfloat16().float()

    given = {
        "x": random(rows, inner),
        "weight": random(inner, outer, scale=inner**-0.5),
        "bias": random(outer),
        "dy": random(rows, inner),
        "weight_behind": random(outer, inner, scale=inner**-0.5),
        "before": random(outer),
    }
    save_file(given, tmp_path / "in.safetensors")
    got = products_of(where, tmp_path, shape)

    x, weight, bias, dy, behind, before = (t.double() for t in given.values())
    half_ulp, lost = 2**-8, (inner + 1) * 2**-23
    want = x @ weight + bias
    sizes = x.abs() @ weight.abs() + bias.abs()
    assert ((got["hidden"] - want).abs() <= half_ulp * want.abs() + 2 * lost * sizes).all()

    hidden = got["hidden"].double().requires_grad_()
    active = torch.nn.functional.gelu(hidden, approximate="tanh")
    (slope,) = torch.autograd.grad(active.sum(), hidden)
    bound = (half_ulp + 2**-14 * 1.01) * active.abs() + 2**-130
    assert ((got["activated"] - active).abs() <= bound).all()

    want = dy @ behind.T * slope
    sizes = dy.abs() @ behind.abs().T
    bound = 2.01 * half_ulp * want.abs() + 2 * (1.2 * lost + 1.2 * 2**-14) * sizes
    assert ((got["gradient"] - want).abs() <= bound).all()

    columns = got["gradient"].double()
    slack = rows * 2**-24 * columns.abs().sum(0)
    for name, first in (("sums", torch.zeros_like(before)), ("added", before)):
        want = first + columns.sum(0)
        assert ((got[name] - want).abs() <= half_ulp * 1.01 * want.abs() + slack).all(), name

    if where == "simulator":
        again = products_of("race", tmp_path, shape, variables="random:3")
        assert all(torch.equal(again[name], value) for name, value in got.items())
