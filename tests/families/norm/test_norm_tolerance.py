"""The bound of layer_norm catches what rounding does not do."""

import pytest
import torch

from thunderkittens.testing import assert_close, tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mistake", ["eps", "mean of N - 1", "one column", "bias twice"])
def test_layer_norm_bound_catches_mistakes(dtype, mistake):
    x = 0.1 * torch.randn(4, 32).to(dtype)
    weight, bias = torch.randn(32).to(dtype), torch.randn(32).to(dtype)
    y, bound = tolerance.layer_norm(x, weight, bias, 1e-3)
    assert_close(y.to(dtype), y, bound)
    wide = x.double()
    if mistake == "one column":
        wrong = torch.cat([y[:, :-1], y[:, :1]], 1)
    elif mistake == "bias twice":
        wrong = y + bias
    else:
        eps, correction = (1e-5, 0) if mistake == "eps" else (1e-3, 1)
        rstd = (wide.var(-1, correction=correction, keepdim=True) + eps).rsqrt()
        wrong = (wide - wide.mean(-1, keepdim=True)) * rstd * weight.double() + bias.double()
    with pytest.raises(AssertionError):
        assert_close(wrong.to(dtype), y, bound)
