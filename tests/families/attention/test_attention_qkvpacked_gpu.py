"""attention_qkvpacked on a GPU: the simulator's checks, CUDA graphs, and compiled code."""

import dataclasses

import pytest
import torch

import thunderkittens
from tests.families.attention import cases
from tests.families.attention import qkvpacked_checks as checks
from tests.families.attention.cases import BF16, FP32, Case
from thunderkittens.testing import memory

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("generic", [False, True], ids=["", "generic"])
@pytest.mark.parametrize("case", checks.NUMBERS, ids=str)
def test_against_float64_and_attention(case, generic):
    with cases.kernels_of(dataclasses.replace(case, generic=generic)):
        checks.check_numbers(case, "cuda", launched=True)


def test_longer_ones():
    for case in (Case(1025, 1025, True, key_heads=12, batch=4), Case(777, 777, head_dim=128)):
        checks.check_numbers(case, "cuda", launched=True)


def test_strides_needs_and_stray_tokens():
    checks.check_layouts(Case(200, 200, True, key_heads=2, batch=2), "cuda")
    checks.check_needs(Case(200, 200, True, key_heads=2, sinks=FP32), "cuda")
    checks.check_stray_tokens("cuda", BF16)
    checks.check_no_double_backward("cuda")


def test_what_torch_computes(monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT", raising=False)
    checks.check_stray_tokens("cuda", BF16, width=20)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic):
    checks.check_compiled(Case(90, 90, True, key_heads=2), "cuda", "inductor", dynamic)


def test_in_a_graph():
    """Forward and backward, captured and replayed on new values."""
    case = Case(200, 200, True, key_heads=2)
    tensors = [*checks.make(case, "cuda"), *cases.incoming(case, "cuda", with_lse=True)]
    checks.run(case, *tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = checks.run(case, *tensors)
    tensors[0].mul_(0.5)
    graph.replay()
    want = checks.run(case, *tensors)
    assert all(map(memory.bits_equal, got, want))


def test_memory_of_a_backward():
    """dqkv is all that is made beside the workspace: no gradient of a part, nor a sum of such."""
    qkv = torch.randn(4, 1024, 3, 12, 64, device="cuda").to(BF16).requires_grad_()
    o = thunderkittens.attention_qkvpacked(qkv, causal=True)
    dout = torch.randn_like(o)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    (dqkv,) = torch.autograd.grad(o, qkv, dout)
    peak = torch.cuda.max_memory_allocated() - before
    # The workspace has 4 bytes for an element of q, 12 for a row and 16 for 128 keys of a head; and
    # torch may leave 1 MiB of a block with each of the two.
    rows = o.shape[:3].numel()
    workspace = 4 * o.numel() + 12 * rows + 16 * (rows // 128)
    assert peak <= dqkv.numel() * 2 + workspace + (2 << 20)
