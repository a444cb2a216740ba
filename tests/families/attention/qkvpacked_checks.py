"""What attention_qkvpacked must give, on every backend: attention's numbers, of one tensor."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import thunderkittens
from tests.families.attention import cases, gradients_reference, guarded
from tests.families.attention.cases import BF16, FP16, FP32, Case
from thunderkittens import _C
from thunderkittens.testing import memory

# Of [B, S, 3, H, D]: what a kernel of ours reads as it lies, and what it cannot.
LAYOUTS = (
    "contiguous",
    "of a wider projection",
    "parts first",
    "heads first",
    "shifted",
    "expanded",
    "offset",
    "stepped",
    "odd strides",
)
COPIED = ("expanded", "offset", "stepped", "odd strides")

# Alike in rows and keys, in heads, and in the widths of keys and values. 0 to 3 tiles.
NUMBERS = [
    Case(1, 1),
    Case(63, 63, True, batch=2, key_heads=2),
    Case(130, 130, dtype=FP16, key_heads=2),
    Case(130, 130, True, head_dim=128, batch=2),
    Case(70, 70, True, head_dim=24, key_heads=3, dtype=FP16),
    Case(70, 70, head_dim=192, key_heads=2),
    Case(66, 66, scale=0.4, softcap=3.0, window_left=20, window_right=5, key_heads=2),
    Case(70, 70, True, key_heads=2, batch=2, sinks=FP32),
    Case(70, 70, key_heads=2, batch=2, sinks=BF16, window_left=9),
    Case(80, 80, key_heads=2, batch=3, seqused_k=(80, 33, 0), leftpad_k=(0, 7, 3)),
    Case(80, 80, True, key_heads=2, batch=2, leftpad_k=(0, 70)),
    Case(90, 90, key_heads=2, cu_seqlens_q=(3, 40, 40, 85), cu_seqlens_k=(3, 40, 40, 85)),
    Case(150, 150, True, head_dim=128, cu_seqlens_q=(0, 149, 150), cu_seqlens_k=(0, 149, 150)),
]
OF_EACH_KIND = [
    Case(193, 193, True, key_heads=2),
    Case(130, 130, head_dim=128, batch=2, dtype=FP16),
    Case(70, 70, True, head_dim=192),
]


def make(case: Case, device: str = "cpu") -> list[Tensor]:
    """qkv of a case; then sinks, and what says where sequences lie."""
    q, k, v, *extra = cases.make(case, device)
    return [torch.stack([q, k, v], -3), *(extra[:-1] if case.packed else extra)]


def lay_out(qkv: Tensor, layout: str) -> Tensor:
    """The same values, of [B, S, 3, H, D], with other strides; expanded, those of one batch."""
    if layout == "of a wider projection":
        flat = qkv.flatten(-3)
        return torch.cat([flat, flat[..., :16]], -1)[..., : flat.shape[-1]].view(qkv.shape)
    if layout == "parts first":
        return qkv.movedim(-3, 0).contiguous().movedim(0, -3)
    if layout == "heads first":  # slices of [B, H, 3, S, D]
        return qkv.transpose(1, 3).contiguous().transpose(1, 3)
    if layout == "shifted":  # by 16 bytes
        return qkv.new_zeros(qkv.numel() + 8)[8:].view(qkv.shape).copy_(qkv)
    if layout == "expanded":
        return qkv[:1].expand_as(qkv)
    if layout == "offset":
        return qkv.new_zeros(qkv.numel() + 1)[1:].view(qkv.shape).copy_(qkv)
    if layout == "stepped":
        return qkv.repeat_interleave(2, -1)[..., ::2]
    if layout == "odd strides":
        return torch.cat([qkv, qkv[..., :3]], -1)[..., : qkv.shape[-1]]
    return qkv


def options(case: Case, *extra: Tensor) -> dict:
    """The keywords of a case's call, from what `make` gives beside qkv."""
    if not case.packed:
        return cases.options(case, *extra)
    given = cases.options(case, *extra, extra[-1])
    for name in ("cu_seqlens", "max_seqlen"):
        given[name] = given.pop(f"{name}_q")
        del given[f"{name}_k"]
    return given


def run(case: Case, qkv: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    """o and lse; and, of the gradients of these that stand last, dqkv and dsinks."""
    *extra, dout, dlse = rest
    tensors = [t.detach() for t in (qkv, *extra)]
    leaves = [t.requires_grad_() for t in tensors if t.is_floating_point()]
    qkv, *extra = tensors
    o, lse = thunderkittens.attention_qkvpacked(qkv, **options(case, *extra), return_lse=True)
    return o.detach(), lse.detach(), *torch.autograd.grad((o, lse), leaves, (dout, dlse))


def of_three(case: Case, tensors: list[Tensor]) -> list[Tensor]:
    """What attention is given in place of that, q, k and v being views."""
    qkv, *extra = tensors
    return [*qkv.unbind(-3), *extra, *extra[-1:] * case.packed]


def check_numbers(case: Case, device: str, launched: bool = False) -> None:
    """Right by float64, within its tensors, and the bits of attention.

    Args:
        case: The call.
        device: Where.
        launched: Whether kernels of ours have to compute it, forward and backward.
    """
    tensors = make(case, device)
    incoming = cases.incoming(case, device, with_lse=True)
    before = _C.launch_counts()
    results = guarded.run(lambda *t: run(case, *t), *tensors, *incoming)
    entries = ("attention_forward", "attention_backward")
    counts = [_C.launch_counts()[e] - before[e] for e in entries]
    assert counts == [guarded.runs() * launched] * 2
    o, lse, dqkv, *dsinks = results
    assert dqkv.shape == tensors[0].shape and dqkv.is_contiguous() and o.is_contiguous()
    three = of_three(case, tensors)
    cases.Reference(case, *three).check(o, lse)
    found = gradients_reference.judged(case, three, *incoming)
    gradients_reference.check(found, [*dqkv.unbind(-3), *dsinks])
    want = cases.forward(case, *three)
    assert all(map(memory.bits_equal, (o, lse), want))
    if gradients_reference.is_deterministic(case, three):
        want = cases.gradients(case, *three[:3], *incoming, three[3:])
        assert all(map(memory.bits_equal, (*dqkv.unbind(-3), *dsinks), want))


def check_layouts(case: Case, device: str) -> None:
    """Strides, offset and sharing change no bit, and dqkv is contiguous whatever they are."""
    for layout in LAYOUTS:
        qkv, *extra = make(case, device)
        incoming = cases.incoming(case, device, with_lse=True)
        if layout == "expanded":
            qkv = qkv[:1].expand_as(qkv).contiguous()
        want = run(case, qkv, *extra, *incoming)
        got = run(case, lay_out(qkv, layout), *extra, *incoming)
        if gradients_reference.is_deterministic(case, of_three(case, [qkv, *extra])):
            assert all(map(memory.bits_equal, got, want)), layout
        assert all(map(memory.bits_equal, got[:2], want[:2])), layout
        assert got[2].is_contiguous()


def check_needs(case: Case, device: str) -> None:
    """Sinks alone, or qkv alone, get what they get together; and without any, nothing is kept."""
    assert case.sinks is not None
    qkv, sinks = make(case, device)
    dout, _ = cases.incoming(case, device, with_lse=False)

    def gradients(*leaves: Tensor) -> list[Tensor]:
        given = options(case, sinks)
        o = thunderkittens.attention_qkvpacked(qkv, **given)
        return list(torch.autograd.grad(o, leaves, dout))

    qkv.requires_grad_()
    sinks.requires_grad_()
    both = gradients(qkv, sinks)
    sinks.requires_grad_(False)
    assert memory.bits_equal(*gradients(qkv), both[0])
    qkv.requires_grad_(False)
    sinks.requires_grad_()
    assert memory.bits_equal(*gradients(sinks), both[1])
    sinks.requires_grad_(False)
    assert thunderkittens.attention_qkvpacked(qkv, **options(case, sinks)).grad_fn is None


def check_stray_tokens(device: str, dtype: torch.dtype, width: int = 64) -> None:
    """NaN in tokens of no sequence reaches nothing; their gradients are 0."""
    qkv, dout = torch.randn(20, 3, 2, width), torch.randn(20, 2, width)
    qkv, dout = qkv.to(device, dtype), dout.to(device, dtype)
    places = {"cu_seqlens": torch.tensor([2, 9, 9, 15], device=device), "max_seqlen": 7}
    inside = slice(2, 15)
    spoilt = torch.full_like(qkv, math.nan)
    spoilt[inside] = qkv[inside]
    results = []
    for given in (qkv, spoilt):
        leaf = given.clone().requires_grad_()
        o = thunderkittens.attention_qkvpacked(leaf, causal=True, **places)
        results.append((o.detach(), *torch.autograd.grad(o, leaf, dout)))
    for got, want in zip(results[1], results[0], strict=True):
        assert memory.bits_equal(got, want)
        assert not got[:2].any() and not got[15:].any()


def check_no_double_backward(device: str) -> None:
    """A gradient that is differentiated says that it cannot be."""
    qkv = torch.randn(1, 20, 3, 2, 64, device=device).to(BF16).requires_grad_()
    o = thunderkittens.attention_qkvpacked(qkv)
    (first,) = torch.autograd.grad(o.float().square().sum(), qkv, create_graph=True)
    message = "^attention_qkvpacked: double backward is not supported"
    with pytest.raises(NotImplementedError, match=message):
        first.float().sum().backward()


def check_compiled(case: Case, device: str, backend: str, dynamic: bool) -> None:
    """Compiled without a graph break, forward and backward: eager's bits, between other ops."""
    torch._dynamo.reset()

    def step(x: Tensor) -> Tensor:
        qkv = (2 * x).view(case.batch, -1, 3, case.key_heads, case.head_dim)
        return thunderkittens.attention_qkvpacked(qkv, **cases.options(case))

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic, backend=backend)
    for length in (case.rows, case.rows + 3) if dynamic else (case.rows,):
        width = 3 * case.key_heads * case.head_dim
        x = torch.randn(case.batch, length, width, device=device).to(case.dtype).requires_grad_()
        got, want = compiled(x), step(x)
        assert memory.bits_equal(got.detach(), want.detach())
        dout = torch.randn_like(want)
        grads = [torch.autograd.grad(o, x, dout)[0] for o in (got, want)]
        three = list((2 * x).view(case.batch, -1, 3, case.key_heads, case.head_dim).unbind(2))
        if gradients_reference.is_deterministic(case, three):
            assert memory.bits_equal(*grads)
