"""backward() inside autocast, of attention in the simulator and compiled."""

import dataclasses

import pytest
import torch

import thunderkittens
from tests.families.attention.calls import CALLS
from tests.tools import calls
from tests.tools.calls import BF16, FP32
from thunderkittens import _loader

ATTENTION = [call for call in CALLS if call.op != "scaled_dot_product_attention"]
# A kind of call has one dtype with `attention`, and the other with `attention_qkvpacked`.
KINDS = [*dict.fromkeys(call.kind for call in ATTENTION)]
BY_TURNS = [
    (call, (FP32, BF16)[(KINDS.index(call.kind) + (call.op == "attention")) % 2])
    for call in ATTENTION
]


@pytest.mark.skipif(not _loader.SIMULATOR.is_file(), reason="the simulator is not built")
@pytest.mark.filterwarnings("ignore:attention(_backward)?. computed by torch")
@pytest.mark.parametrize("call", ATTENTION, ids=str)
def test_in_the_simulator(call, monkeypatch):
    """What a kernel has computed is differentiated by an op of our own, in ATen."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    with thunderkittens.backend("simulator"):
        calls.check(call, BF16, "cpu", forward_in_autocast=False)


@pytest.mark.parametrize(("call", "dtype"), BY_TURNS, ids=str)
def test_compiled(call, dtype):
    """Attention's ATen ops are traced one by one where a gradient is recorded."""
    torch._dynamo.reset()
    compiled = torch.compile(call.call, backend="aot_eager")
    calls.check(dataclasses.replace(call, call=compiled), dtype, "cpu", forward_in_autocast=True)


def test_a_backward_that_raises_leaves_autocast_on():
    q, k, v = (torch.randn(1, 5, 2, 8, requires_grad=True) for _ in range(3))
    o, lse = thunderkittens.attention(q, k, v, return_lse=True)
    with torch.autocast("cpu", BF16):
        with pytest.raises(RuntimeError, match="Mismatch in shape"):
            lse.backward(torch.ones(3))
        torch.autograd.grad(lse.sum(), k, retain_graph=True)
        lse.sum().backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            o.sum().backward()  # some node of what they share has freed what it had saved
        assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == BF16
    assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == FP32
