"""Packed sequences of linear_attention are apart on a GPU: one changes no bit of another."""

import pytest
import torch

import thunderkittens
from tests.families.linear_attention import apart

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(params=[None, "generic"], ids=["specialised", "generic"], autouse=True)
def kernel(request):
    with thunderkittens.backend("auto", kernel=request.param):
        yield


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize(
    ("case", "which"),
    [*((apart.APART, which) for which in apart.SPOILED), (apart.OF_SEGMENTS, 1)],
    ids=str,
)
def test_not_finite_stays_in_its_sequence(case, which, value):
    apart.check(case, which, lambda _: value, device="cuda")


@pytest.mark.parametrize("which", apart.SPOILED)
def test_large_gradients_take_no_digits_from_others(which):
    apart.check(apart.APART, which, lambda x: x * 2.0**60, apart.GRADIENTS, device="cuda")
