"""The bound of rotary catches what rounding does not do."""

import pytest
import torch

from thunderkittens.testing import assert_close, tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mistake", ["neighbours", "sign", "next position", "a copied element"])
def test_rotary_bound_catches_mistakes(dtype, mistake):
    x, angle = torch.randn(5, 2, 12).to(dtype), torch.rand(6, 4).double()
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    want, bound = tolerance.rotary(x, cos[:5], sin[:5])
    assert_close(want.to(dtype), want, bound)
    if mistake == "neighbours":
        wrong = tolerance.rotary(x, cos[:5], sin[:5], interleaved=True)[0]
    elif mistake == "sign":
        wrong = tolerance.rotary(x, cos[:5], -sin[:5])[0]
    elif mistake == "next position":
        wrong = tolerance.rotary(x, cos[1:], sin[1:])[0]
    else:
        wrong = want.clone()
        wrong[0, 0, 9] *= 1.01
    with pytest.raises(AssertionError):
        assert_close(wrong.to(dtype), want, bound)
