"""The bounds of mlp's fuzz: what arithmetic may do, they allow; done by hand."""

import torch

from tests.families.mlp import fuzz
from tests.fuzz import judge
from thunderkittens.testing import tolerance

ROWS, FP16 = 64, torch.float16


def test_a_sum_of_what_was_rounded_near_zero():
    """dhidden of 2⁻²⁶ is 0 in float16, whose step there is 2⁻²⁴: each row loses as much of dW₁."""
    slope = 0.5  # gelu's at 0
    given = {
        "x": torch.ones(ROWS, 1, dtype=FP16),
        "fc1_weight": torch.zeros(1, 1, dtype=FP16),
        "fc2_weight": torch.full((1, 1), 2.0**-12, dtype=FP16),
    }
    dy = torch.full((ROWS, 1), 2.0**-13, dtype=FP16)
    dhidden = (dy @ given["fc2_weight"]) * slope
    assert not dhidden.any()
    got = dhidden.T @ given["x"]
    want = fuzz.references(given, dy, "none", generic=False)["dfc1_weight"]
    assert want.want.item() == ROWS * 2.0**-26
    assert judge.right(got, want).all()
    # Of unrelated numbers as much as their roundings, half a step each, are a random walk.
    generic = fuzz.references(given, dy, "none", generic=True)["dfc1_weight"]
    half_step = tolerance.floor(FP16) / 2
    assert 3 * half_step * ROWS**0.5 <= generic.bound.item() < want.bound.item()
    assert not judge.right(got + 2.0**-12, want).any()
