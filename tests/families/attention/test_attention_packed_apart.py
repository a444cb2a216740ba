"""attention of packed sequences: what one holds changes no bit of another's o, lse or gradients."""

import contextlib
import math

import pytest
import torch

import thunderkittens
from tests.families.attention import apart
from tests.tools.in_simulator import needs_simulator


@pytest.fixture(
    params=["torch", *(pytest.param(k, marks=needs_simulator) for k in ("specialised", "generic"))]
)
def backend(request, monkeypatch) -> contextlib.AbstractContextManager:
    if request.param == "torch":
        return thunderkittens.backend("torch")
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    kernel = "generic" if request.param == "generic" else None
    return thunderkittens.backend("simulator", kernel=kernel)


@pytest.mark.parametrize("which", apart.SPOILED)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_not_finite_stays_in_its_sequence(value, which, backend):
    with backend:
        apart.check(64, torch.bfloat16, which, lambda _: value)


@pytest.mark.parametrize("which", apart.SPOILED)
@pytest.mark.parametrize("width", [64, 128, 256])
def test_large_values_take_no_digits_from_others(width, which, backend):
    """dq's units are those of the keys of its own sequence."""
    with backend:
        apart.check(width, torch.bfloat16, which, lambda x: x * 2.0**20, only=("v",))
