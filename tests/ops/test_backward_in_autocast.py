"""backward() inside autocast gives the bits that it gives outside, for every op and backend."""

import dataclasses

import pytest
import torch

import thunderkittens
from tests.ops import autocast_calls as calls
from tests.ops.autocast_calls import BF16, CALLS, FP32
from thunderkittens import _loader

# Of what is exported, that which is no differentiable op of its own.
OTHERS = {
    "Explanation",
    "__version__",
    "backend",
    "explain",
    "include_dir",
    "nn",
    "register_flash_attention",
}
ATTENTION = [call for call in CALLS if call.op == "attention"]
DTYPES = pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
EVERY = pytest.mark.parametrize("call", CALLS, ids=str)
AROUND = pytest.mark.parametrize("forward", [False, True], ids=["backward alone", "forward too"])


def test_every_op_is_called():
    assert {call.op for call in CALLS} == set(thunderkittens.__all__) - OTHERS


@EVERY
@DTYPES
@AROUND
def test_on_the_cpu(call, dtype, forward):
    calls.check(call, dtype, "cpu", forward)


@pytest.mark.skipif(not _loader.SIMULATOR.is_file(), reason="the simulator is not built")
@pytest.mark.filterwarnings("ignore:attention. computed by torch")
@pytest.mark.parametrize("call", ATTENTION, ids=str)
def test_in_the_simulator(call, monkeypatch):
    """What a kernel has computed is differentiated by an op of our own, in ATen."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    with thunderkittens.backend("simulator"):
        calls.check(call, BF16, "cpu", forward_in_autocast=False)


@DTYPES
@pytest.mark.parametrize("call", ATTENTION, ids=str)
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


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*computed by torch")
@EVERY
@DTYPES
@AROUND
def test_on_a_gpu(call, dtype, forward, monkeypatch):
    """Deterministic algorithms: torch's FlashAttention adds up dq in any order."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        calls.check(call, dtype, "cuda", forward)
    finally:
        torch.use_deterministic_algorithms(False)
