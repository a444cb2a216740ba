"""Packed sequences of attention are apart on a GPU: what one holds changes no bit of another's."""

import pytest
import torch

import thunderkittens
from tests.families.attention import apart
from tests.families.attention.explained import is_differentiated_by_us

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(params=[None, "generic"], ids=["specialised", "generic"], autouse=True)
def kernel(request):
    with thunderkittens.backend("auto", kernel=request.param):
        yield


def needs_our_kernel(width: int) -> None:
    q = torch.zeros(apart.ENDS[-1], 2, width, dtype=torch.bfloat16, device="cuda")
    if not is_differentiated_by_us(q, q, q, **apart.packing("cuda")):
        pytest.skip("torch's FlashAttention, which computes this backward, adds dq up in any order")


@pytest.mark.parametrize("which", apart.SPOILED)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_not_finite_stays_in_its_sequence(value, which):
    needs_our_kernel(64)
    apart.check(64, torch.bfloat16, which, lambda _: value, device="cuda")


@pytest.mark.parametrize("which", apart.SPOILED)
@pytest.mark.parametrize("width", [64, 128, 256])
def test_large_values_take_no_digits_from_others(width, which):
    """dq's units are those of the keys of its own sequence."""
    needs_our_kernel(width)
    apart.check(width, torch.bfloat16, which, lambda x: x * 2.0**20, ("v",), device="cuda")
