"""attention of packed sequences: what one holds changes no bit of another's o, lse or gradients."""

import contextlib
import math

import pytest
import torch

import thunderkittens
from tests.families.attention import apart
from tests.tools.in_simulator import needs_simulator

KERNELS = ("torch", "specialised", "generic")
WIDTHS = (64, 128, 256)


def pairs(first: tuple, second: tuple) -> list:
    """Of a kernel, one of the first and one of the second: any two meet, but not all three."""
    return [
        pytest.param(
            kernel,
            one,
            second[(i + j) % len(second)],
            marks=[] if kernel == "torch" else needs_simulator,
        )
        for i, kernel in enumerate(KERNELS)
        for j, one in enumerate(first)
    ]


def backend_of(kernel: str, monkeypatch) -> contextlib.AbstractContextManager:
    if kernel == "torch":
        return thunderkittens.backend("torch")
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    return thunderkittens.backend("simulator", kernel="generic" if kernel == "generic" else None)


@pytest.mark.parametrize(("kernel", "which", "value"), pairs(apart.SPOILED, (math.nan, math.inf)))
def test_not_finite_stays_in_its_sequence(kernel, which, value, monkeypatch):
    with backend_of(kernel, monkeypatch):
        apart.check(64, torch.bfloat16, which, lambda _: value)


@pytest.mark.parametrize(("kernel", "which", "width"), pairs(apart.SPOILED, WIDTHS))
def test_large_values_take_no_digits_from_others(kernel, which, width, monkeypatch):
    """dq's units are those of the keys of its own sequence."""
    with backend_of(kernel, monkeypatch):
        apart.check(width, torch.bfloat16, which, lambda x: x * 2.0**20, only=("v",))
