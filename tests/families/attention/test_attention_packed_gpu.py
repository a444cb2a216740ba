"""Packed sequences of attention on a GPU, where torch's ops may compute them, too."""

import math

import pytest
import torch

import thunderkittens
from thunderkittens.testing import assert_close

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("width", [20, 64])
def test_tokens_of_no_sequence_reach_no_gradient(width, monkeypatch):
    """NaN in tokens behind the last sequence, also where torch's ops compute all (width 20)."""
    monkeypatch.delenv("THUNDERKITTENS_STRICT", raising=False)
    cu_seqlens = torch.tensor([0, 5, 9], dtype=torch.int32)
    inputs = [torch.randn(14, 2, width) for _ in range(4)]
    for t in inputs:
        t[9:] = math.nan

    def gradients(device: str) -> list[torch.Tensor]:
        q, k, v, dout = (t.to(device, torch.float16).requires_grad_() for t in inputs)
        cu = cu_seqlens.to(device)
        o = thunderkittens.attention(
            q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=5, max_seqlen_k=5
        )
        o.backward(dout.detach())
        return [q.grad, k.grad, v.grad]

    for got, want in zip(gradients("cuda"), gradients("cpu"), strict=True):
        assert not got[9:].any()
        # Roundings of float16 to each product and to the results: 16 units of numbers around 4.
        assert_close(got[:9].cpu(), want[:9].double(), 16 * 2**-11 * (4 + want[:9].abs().double()))
