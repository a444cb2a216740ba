"""One call of every differentiable public op, for the tests of backward() inside autocast."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

import thunderkittens
from thunderkittens.testing import memory

FP32, BF16 = torch.float32, torch.bfloat16


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of an op.

    Attributes:
        op: Its public name.
        shapes: Of the tensors that have a gradient.
        call: Takes those, and gives the op's outputs.
        kind: What sets it apart from the op's other calls.
    """

    op: str
    shapes: tuple[tuple[int, ...], ...]
    call: Callable[..., Tensor | tuple[Tensor, ...]]
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.op} {self.kind}".strip()


def _targets(like: Tensor) -> Tensor:
    return torch.arange(12, device=like.device) % 40


def _packed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    ends = torch.tensor([0, 20, 33], device=q.device)
    places = {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": 20, "max_seqlen_k": 20}
    return thunderkittens.attention(*(t.flatten(0, 1) for t in (q, k, v)), **places)


def _turned(q: Tensor, k: Tensor, inplace: bool) -> tuple[Tensor, Tensor]:
    angles = torch.linspace(0, 3, 33 * 8, device=q.device).view(33, 8)
    q, k = (t.clone() if inplace else t for t in (q, k))
    return thunderkittens.rotary(q, k, angles.cos(), angles.sin(), inplace=inplace)


QKV = ((1, 33, 4, 64), (1, 33, 2, 64), (1, 33, 2, 64))
ROWS, VECTOR = (12, 96), (96,)
attention, sdpa = thunderkittens.attention, thunderkittens.scaled_dot_product_attention
CALLS = [
    Call("attention", QKV, attention),
    Call("attention", QKV, lambda *t: attention(*t, causal=True), "causal"),
    Call("attention", QKV, lambda *t: attention(*t, return_lse=True), "lse"),
    Call("attention", QKV, lambda *t: attention(*t, window=(5, 2), softcap=3.0), "options"),
    Call("attention", (*QKV, (4,)), lambda *t: attention(*t[:3], sinks=t[3]), "sinks"),
    Call("attention", (*QKV[:2], (1, 33, 2, 24)), attention, "values"),
    Call("attention", (*QKV[:2], (1, 33, 2, 20)), attention, "no kernel"),
    Call("attention", QKV, _packed, "packed"),
    Call("scaled_dot_product_attention", ((1, 2, 33, 64),) * 3, sdpa),
    Call("layer_norm", (ROWS, VECTOR, VECTOR), thunderkittens.layer_norm),
    Call("rms_norm", (ROWS, VECTOR), thunderkittens.rms_norm),
    Call(
        "rms_norm",
        (ROWS, VECTOR),
        lambda *t: thunderkittens.rms_norm(*t, weight_offset=1.0, casting="gemma"),
        "gemma",
    ),
    Call("add_layer_norm", (ROWS, ROWS, VECTOR, VECTOR), thunderkittens.add_layer_norm),
    Call("add_rms_norm", (ROWS, ROWS, VECTOR), thunderkittens.add_rms_norm),
    Call("swiglu", (ROWS, ROWS), thunderkittens.swiglu),
    Call("geglu", (ROWS, ROWS), thunderkittens.geglu),
    Call("gelu", (ROWS,), thunderkittens.gelu),
    Call("rotary", ((1, 33, 4, 16),) * 2, lambda *t: _turned(*t, inplace=False)),
    Call("rotary", ((1, 33, 4, 16),) * 2, lambda *t: _turned(*t, inplace=True), "in place"),
    *(
        Call(
            "cross_entropy",
            ((12, 40),),
            lambda x, reduction=reduction: thunderkittens.cross_entropy(
                x, _targets(x), reduction=reduction, label_smoothing=0.1, z_loss=0.01
            ),
            reduction,
        )
        for reduction in ("mean", "none")
    ),
    *(
        Call(
            "linear_cross_entropy",
            (ROWS, (40, 96), (40,)),
            lambda x, w, b, reduction=reduction: thunderkittens.linear_cross_entropy(
                x, w, _targets(x), bias=b, reduction=reduction
            ),
            reduction,
        )
        for reduction in ("mean", "none")
    ),
]


def check(call: Call, dtype: torch.dtype, device: str, forward_in_autocast: bool) -> None:
    """Asserts that autocast around the backward changes no bit of a gradient."""
    leaves = [torch.randn(s, device=device).to(dtype).requires_grad_() for s in call.shapes]
    with torch.autocast(device, BF16, enabled=forward_in_autocast):
        outputs = call.call(*leaves)
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    given = [torch.randn(o.shape, device=device).to(o.dtype) for o in outputs]

    def gradients(autocast: bool) -> tuple[Tensor, ...]:
        with torch.autocast(device, BF16, enabled=autocast):
            return torch.autograd.grad(outputs, leaves, given, retain_graph=True)

    want, got = gradients(autocast=False), gradients(autocast=True)
    assert all(map(memory.bits_equal, got, want))
    assert all(bool(t.any()) for t in want)
