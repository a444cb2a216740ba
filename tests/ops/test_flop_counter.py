"""FlopCounterMode counts our ops as it counts torch's, whichever is imported first."""

import subprocess
import sys

import pytest
import torch
from torch.utils import flop_counter
from torch.utils.flop_counter import FlopCounterMode

import thunderkittens
from tests.tools.calls import BF16
from thunderkittens._loader import PACKAGE


def _count(function) -> int:
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def _qkv() -> list[torch.Tensor]:
    shapes = ((2, 6, 4, 16), (2, 10, 4, 16), (2, 10, 4, 16))
    return [torch.randn(s).to(BF16) for s in shapes]


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (2, 0)}], ids=str)
def test_attention_counts_as_torchs_on_a_gpu(options):
    """Masks leave nothing out, there as here; the backward computes the scores once more.

    With a gradient on the CPU, torch's own ops compute it, and are counted.
    """
    q, k, v = _qkv()
    shapes = [t.transpose(1, 2).shape for t in (q, k, v)]
    assert _count(lambda: thunderkittens.attention(q, k, v, **options)) == (
        flop_counter.sdpa_flop_count(*shapes)
    )
    o, lse = thunderkittens.attention(q, k, v, return_lse=True, **options)
    needs = [True, True, True, False]

    def backward() -> None:
        torch.ops.thunderkittens.attention_backward(o, None, q, k, v, o, lse, False, None, needs)

    assert _count(backward) == flop_counter.sdpa_backward_flop_count(shapes[0], *shapes)


def test_grouped_heads_and_values_of_another_width():
    q, k, v = torch.randn(1, 3, 4, 16), torch.randn(1, 5, 2, 16), torch.randn(1, 5, 2, 8)
    assert _count(lambda: thunderkittens.attention(q, k, v)) == 2 * 4 * 3 * 5 * (16 + 8)


def test_packed_sequences_count_each_by_itself():
    q = torch.randn(9, 2, 8)
    ends = torch.tensor([0, 4, 9])
    places = {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": 5, "max_seqlen_k": 5}
    got = _count(lambda: thunderkittens.attention(q, q, q, **places))
    assert got == 2 * 2 * (4 * 4 + 5 * 5) * (8 + 8)


def test_attention_of_one_tensor_counts_as_of_three():
    qkv = torch.randn(2, 6, 3, 4, 16).to(BF16)
    parts = qkv.unbind(-3)
    want = flop_counter.sdpa_flop_count(*(t.transpose(1, 2).shape for t in parts))
    assert _count(lambda: thunderkittens.attention_qkvpacked(qkv)) == want
    o, lse = thunderkittens.attention_qkvpacked(qkv, return_lse=True)
    rest, ops = (o, lse, False, None), torch.ops.thunderkittens
    got = _count(lambda: ops.attention_qkvpacked_backward(o, None, qkv, *rest, [True, False]))
    needs = [True, True, True, False]
    assert got == _count(lambda: ops.attention_backward(o, None, *parts, *rest, needs))
    places = {"cu_seqlens": torch.tensor([0, 4, 12]), "max_seqlen": 8}
    got = _count(lambda: thunderkittens.attention_qkvpacked(qkv.flatten(0, 1), **places))
    assert got == 2 * 4 * (4 * 4 + 8 * 8) * (16 + 16)


def test_linear_attention_counts_its_chunks():
    q, v = torch.randn(2, 70, 2, 16), torch.randn(2, 70, 4, 24)
    once = 2 * 2 * 70 * 4 * (64 * (16 + 24) + 2 * 16 * 24)
    leaves = [t.requires_grad_() for t in (q, q.detach().clone(), v)]
    assert _count(lambda: thunderkittens.linear_attention(*leaves)) == once
    assert _count(lambda: thunderkittens.linear_attention(*leaves).sum().backward()) == 4 * once


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("trained", [(False, False), (True, False), (True, True)], ids=str)
def test_linear_cross_entropy(reduction, trained):
    """One product forward, one for each gradient; of unreduced losses the logits once more."""
    x, weight = (
        torch.randn(s, requires_grad=t) for s, t in zip(((6, 8), (10, 8)), trained, strict=True)
    )
    targets, product = torch.zeros(6, dtype=torch.long), 2 * 6 * 8 * 10

    def step() -> None:
        loss = thunderkittens.linear_cross_entropy(x, weight, targets, reduction=reduction).sum()
        if any(trained):
            loss.backward()

    again = int(reduction == "none" and any(trained))
    assert _count(step) == product * (1 + again + sum(trained))


def test_what_has_no_products_counts_0():
    x, weight = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    targets = torch.zeros(4, dtype=torch.long)

    def step() -> None:
        y, r = thunderkittens.add_rms_norm(thunderkittens.layer_norm(x, weight), x, weight)
        y = thunderkittens.swiglu(y, thunderkittens.gelu(thunderkittens.rms_norm(r, weight)))
        thunderkittens.cross_entropy(y, targets).backward()

    assert _count(step) == 0


IMPORTED_LAST = """
import sys
import torch
import thunderkittens
assert "torch.utils.flop_counter" not in sys.modules
from torch.utils.flop_counter import FlopCounterMode
q = torch.randn(1, 2, 1, 8)
with FlopCounterMode(display=False) as counter:
    thunderkittens.attention(q, q, q)
assert counter.get_total_flops() == 2 * 2 * 2 * 2 * 8
"""


def test_the_counter_may_be_imported_last():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED_LAST], cwd=PACKAGE.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
