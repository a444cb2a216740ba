"""What attention's gradients must be, on every backend."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import thunderkittens
from tests.families.attention import cases, gradients_reference, guarded, layouts
from tests.families.attention.cases import Case
from thunderkittens import _C
from thunderkittens.testing import memory

BLOCK = 128  # rows or keys that a product may take at once: 0 · NaN of one may reach all


def tensors_of(case: Case, device: str, with_lse: bool) -> tuple[list[Tensor], Tensor, Tensor]:
    """q, k, v and so on; the gradients of o and, or None, of lse."""
    return cases.make(case, device), *cases.incoming(case, device, with_lse)


def run(case: Case, tensors: Sequence[Tensor], dout: Tensor, dlse: Tensor | None) -> list[Tensor]:
    """dq, dk, dv, dsinks, by the public op and autograd."""
    return cases.gradients(case, *tensors[:3], dout, dlse, tensors[3:])


def same(case: Case, tensors: list[Tensor], got: Sequence[Tensor], want: Sequence[Tensor]) -> bool:
    """Whether two runs agree: to the bit, except where torch adds up in any order."""
    if gradients_reference.is_deterministic(case, tensors):
        return all(map(memory.bits_equal, got, want))
    # One unit of bfloat16's rounding, of numbers about 1.
    return all(bool(torch.allclose(a, b, 2**-7, 2**-7)) for a, b in zip(got, want, strict=True))


# ---- Numbers -------------------------------------------------------------------------------------


def check_numbers(case: Case, device: str, with_lse: bool) -> None:
    """Every element within its bound, and no memory read but the tensors'."""
    tensors, dout, dlse = tensors_of(case, device, with_lse)
    if gradients_reference.is_deterministic(case, tensors):
        got = memory_checked(case, tensors, dout, dlse)
    else:
        got = run(case, tensors, dout, dlse)
    gradients_reference.check(gradients_reference.judged(case, tensors, dout, dlse), got)


def memory_checked(
    case: Case, tensors: Sequence[Tensor], dout: Tensor, dlse: Tensor | None
) -> list[Tensor]:
    """The gradients, which must not depend on what lies beside the tensors."""
    results = guarded.run(lambda dout, dlse, *t: run(case, t, dout, dlse), dout, dlse, *tensors)
    return [t for t in results if t is not None]


def check_outliers(case: Case, device: str, where: str, factor: float) -> None:
    """One row of v, of do or of k in each head is so much larger than all others.

    The integers of dq have room for the largest, so that this is what is worst for the others.
    """
    tensors, dout, _ = tensors_of(case, device, with_lse=False)
    spoilt = {"v": tensors[2], "dout": dout, "k": tensors[1]}[where]
    for batch, head in itertools.product(range(case.batch), range(spoilt.shape[2])):
        spoilt[batch, int(torch.randint(spoilt.shape[1], ())), head] *= factor
    got = run(case, tensors, dout, None)
    gradients_reference.check(gradients_reference.judged(case, tensors, dout, None), got)


def check_largest(case: Case, device: str, factor: float) -> None:
    """dq as large as its integers have room for, by the last two keys of all.

    Each has half of a row's weight; v, and k in its first element, are opposite and the largest:
    |dq| = |do|₂ · |v|₂ · |k|. Elsewhere v is `factor` times smaller.
    """
    (q, k, v), dout, _ = tensors_of(case, device, with_lse=False)
    signs = torch.where(torch.randn_like(v[:, 0]) < 0, -1.0, 1.0).to(v.dtype)
    k[..., :2].clamp_(-1, 1)
    q[..., 0], q[..., 1], k[..., 1] = 0, 16, 0
    for key, sign in ((-1, 1), (-2, -1)):
        k[:, key, :, 2:] = k[:, -1, :, 2:]
        k[:, key, :, 0], k[:, key, :, 1] = 16 * sign, 16
        v[:, key] = factor * sign * signs
    dout.copy_(signs.repeat_interleave(case.group, 1).unsqueeze(1).expand_as(dout))
    got = run(case, [q, k, v], dout, None)
    found = gradients_reference.judged(case, [q, k, v], dout, None, generic=False)
    most = case.head_dim**0.5 * factor * 16  # |do|₂ = √D, and so is |v|₂ / factor; scale = 1 / √D
    assert bool((found["dq"].want[..., 0].abs() > 0.99 * most).all())
    gradients_reference.check(found, got)


def check_powers(case: Case, device: str, where: str, power: int) -> None:
    """A power of two in do, v or k (out of q) comes out of the gradients, and changes no other bit.

    Nothing here overflows or is subnormal, squares of elements excepted: those may make the
    integers of dq coarser, which has to stay in its bounds.
    """
    tensors, dout, _ = tensors_of(case, device, with_lse=False)
    if not gradients_reference.is_deterministic(case, tensors):
        return
    want = run(case, tensors, dout, None)
    by, (q, k, v) = 2.0**power, tensors
    factors = {"dout": (by, by, by), "v": (by, by, 1.0), "k": (by, 1 / by, 1.0)}[where]
    if where == "dout":
        dout = dout * by
    elif where == "v":
        v = v * by
    else:
        q, k = q / by, k * by
    got = run(case, [q, k, v], dout, None)
    gradients_reference.check(gradients_reference.judged(case, [q, k, v], dout, None), got)
    exact = {"dk", "dv"} if gradients_reference.is_ours(case, tensors) else {"dq", "dk", "dv"}
    for name, a, b, factor in zip(("dq", "dk", "dv"), got, want, factors, strict=True):
        scaled = b.double() * factor
        regular = (scaled.abs() >= torch.finfo(a.dtype).smallest_normal) | (scaled == 0)
        assert name not in exact or bool(((a.double() == scaled) | ~regular).all()), name


def check_zero(case: Case, device: str, with_lse: bool) -> None:
    """A gradient of zeros gives zeros, all exactly, whatever the tensors hold."""
    tensors, dout, dlse = tensors_of(case, device, with_lse)
    zeros = torch.zeros_like(dout), None if dlse is None else torch.zeros_like(dlse)
    assert not any(bool(t.any()) for t in run(case, tensors, *zeros))


def check_zero_rows(case: Case, device: str) -> None:
    """Rows whose gradient is zero have none of q, beside others that have one."""
    tensors, dout, _ = tensors_of(case, device, with_lse=False)
    dout[:, ::3] = 0
    dq, *_ = got = run(case, tensors, dout, None)
    assert not dq[:, ::3].any()
    gradients_reference.check(gradients_reference.judged(case, tensors, dout, None), got)


def check_blind_rows(case: Case, device: str) -> None:
    """Rows that see no key: dq is exactly 0, and nothing comes in through their lse, be it NaN."""
    blind = ~case.seen().any(1).to(device)
    assert bool(blind.any())
    tensors, dout, dlse = tensors_of(case, device, with_lse=True)
    dq, *rest = run(case, tensors, dout, dlse)
    assert not dq[:, blind].any()
    spoilt = dlse.clone()
    spoilt[:, :, blind] = math.nan
    again = run(case, tensors, dout, spoilt)
    assert same(case, tensors, again, [dq, *rest])
    gradients_reference.check(gradients_reference.judged(case, tensors, dout, dlse), [dq, *rest])


# ---- What is not finite --------------------------------------------------------------------------


def formula(seen: Tensor, pairs: Tensor, scale: float, q, k, v, dout, dlse) -> list[Tensor]:
    """dq, dk, dv of one head, float64, by sums over `pairs` of a row and a key alone.

    A pair that is not `seen` has weight 0, and what it is multiplied by may be NaN. Where others
    than the seen ones count, any weight of a row with an infinite score may be NaN, too.
    """

    def sums(weights: Tensor, other: Tensor, dim: int) -> Tensor:  # [rows, keys] and […, N]
        terms = weights.unsqueeze(-1) * other
        return terms.masked_fill(~pairs.unsqueeze(-1), 0).sum(dim)

    s = (q @ k.T * scale).masked_fill(~seen, -math.inf)
    lse = s.logsumexp(-1, keepdim=True)
    lse = lse if pairs is seen else lse.masked_fill(lse == math.inf, math.nan)
    p = (s - lse).exp()
    delta = (dout * sums(p, v.unsqueeze(0), 1)).sum(-1) - dlse
    ds = p * (dout @ v.T - delta.unsqueeze(-1)) * scale
    dq, dk = sums(ds, k.unsqueeze(0), 1), sums(ds, q.unsqueeze(1), 0)
    return [dq, dk, sums(p, dout.unsqueeze(1), 0)]


def check_not_finite(case: Case, device: str, where: str, value: float) -> None:
    """One element of q, k, v or do is NaN or infinite, in the second of three heads.

    What the formula makes NaN or infinite of it must not look like a number; what shares no block
    of rows and keys with it must keep its bits or, where the formula moves it, stay in its bounds.
    """
    assert (case.key_heads, case.group, case.batch) == (3, 1, 1)
    tensors, dout, dlse = tensors_of(case, device, with_lse=True)  # so that no torch op is fused
    ours = gradients_reference.is_ours(case, tensors)
    clean = run(case, tensors, dout, dlse)
    found = gradients_reference.judged(case, tensors, dout, dlse)
    spoilt = {"q": 0, "k": 1, "v": 2, "dout": 3}[where]
    given = [t.clone() for t in (*tensors, dout)]
    length = given[spoilt].shape[1]
    given[spoilt][0, length - 3, 1, 5] = value
    got = run(case, given[:3], given[3], dlse)
    seen = case.seen().to(device)
    blocks = [torch.arange(n, device=device) // BLOCK for n in seen.shape]
    near = torch.zeros(*(int(b[-1]) + 1 for b in blocks), dtype=torch.bool, device=device)
    near[tuple(b[i] for b, i in zip(blocks, seen.nonzero().T, strict=True))] = True
    near = near[blocks[0]][:, blocks[1]] if ours else torch.ones_like(seen)
    scale = case.scale or case.head_dim**-0.5
    head = [[t[0, :, 1].double() for t in each] for each in (given, (*tensors, dout))]
    for each in head:
        each.append(dlse[0, 1].double())
    must = formula(seen, seen, scale, *head[0])
    may, before = (formula(seen, near, scale, *t) for t in head)
    for i, name in enumerate(("dq", "dk", "dv")):
        lost = got[i][0, :, 1][~must[i].isfinite()]
        assert not bool(lost.isfinite().any()), f"{name}: a number where the formula has none"
        kept = torch.ones_like(got[i], dtype=torch.bool)
        kept[0, :, 1] = may[i] == before[i]
        if ours and name == "dq":  # integers have no NaN: a row is NaN by its factor, or is not
            kept[0, :, 1] &= may[i].isfinite().all(-1, keepdim=True)
        each = found[name]
        each.want[~kept], each.bound[~kept] = 0.0, math.inf
        others = [t[:, :, ::2] for t in (got[i], clean[i])]
        assert memory.bits_equal(*others), f"{name}: another head has changed"
    gradients_reference.check(found, got)


# ---- Which gradients, and how they lie ----------------------------------------------------------


def check_needs(case: Case, device: str) -> None:
    """Each choice of leaves gets the bits that it gets among all, and nothing else a gradient."""
    tensors, dout, _ = tensors_of(case, device, with_lse=False)
    full = run(case, tensors, dout, None)
    for needs in itertools.product((False, True), repeat=len(full)):
        if not any(needs):
            continue
        leaves = [t.detach().requires_grad_(n) for t, n in zip(tensors, needs, strict=False)]
        given = [*leaves, *tensors[len(leaves) :]]
        thunderkittens.attention(*given[:3], **cases.options(case, *given[3:])).backward(dout)
        assert tuple(t.grad is not None for t in leaves) == needs
        pairs = [(t.grad, w) for t, w in zip(leaves, full, strict=True) if t.grad is not None]
        assert same(case, tensors, *zip(*pairs, strict=True)), needs


def check_parts_alone(case: Case, device: str) -> None:
    """A batch, and a key head with its query heads, have the bits that they have by themselves."""
    tensors, dout, dlse = tensors_of(case, device, with_lse=True)
    full = run(case, tensors, dout, dlse)
    one, last = case.group, slice(-1, None)
    of_heads = [slice(-one, None), last, last]
    alone = dataclasses.replace(case, batch=1)
    given = [t[last] for t in (*tensors, dout, dlse)]
    assert same(case, tensors, run(alone, *_split(given)), [t[last] for t in full])
    alone = dataclasses.replace(case, key_heads=1)
    given = [t[:, :, h] for t, h in zip((*tensors, dout), [*of_heads, of_heads[0]], strict=True)]
    given.append(dlse[:, -one:])
    want = [t[:, :, h] for t, h in zip(full, of_heads, strict=True)]
    assert same(case, tensors, run(alone, *_split(given)), want)


def _split(given: list[Tensor]) -> tuple[list[Tensor], Tensor, Tensor]:
    """q, k and v; the gradient of o; that of lse."""
    return given[:3], given[3], given[4]


def incoming_layouts(dout: Tensor) -> dict[str, Tensor]:
    """The same gradient of o in other places; those that are expanded have values of their own."""
    shifted = dout.new_empty(dout.numel() + 1)[1:].view(dout.shape)
    return {
        "transposed": dout.transpose(1, 2).contiguous().transpose(1, 2),
        "odd offset": shifted.copy_(dout),
        "stepped": dout.repeat_interleave(2, -1)[..., ::2],
        "odd strides": torch.cat([dout, dout[..., :3]], -1)[..., : dout.shape[-1]],
        "one number": dout[:1, :1, :1, :1].expand_as(dout),
        "one row": dout[:, :1].expand_as(dout),
        "one head": dout[:, :, :1].expand_as(dout),
        "one of each row": dout[..., :1].expand_as(dout),
        "rows backwards": dout.flip(1).contiguous().flip(1),
    }


def check_incoming_layouts(case: Case, device: str) -> None:
    """Where and how the gradient of o lies changes no bit; nor how that of lse does.

    Each layout with a gradient of lse or without, by turns: how one lies is nothing to the other.
    """
    tensors, dout, dlse = tensors_of(case, device, with_lse=True)
    turns = itertools.cycle((None, dlse))
    for (name, moved), other in zip(incoming_layouts(dout).items(), turns, strict=False):
        want = run(case, tensors, moved.contiguous(), other)
        assert same(case, tensors, run(case, tensors, moved, other), want), name
    expanded = dlse[..., :1].expand_as(dlse)
    want = run(case, tensors, dout, expanded.contiguous())
    assert same(case, tensors, run(case, tensors, dout, expanded), want)
    leaves = [t.detach().requires_grad_() for t in tensors]
    thunderkittens.attention(*leaves, **cases.options(case)).sum().backward()
    want = run(case, tensors, torch.ones_like(dout), None)
    assert same(case, tensors, [t.grad for t in leaves], want)


def check_layouts(case: Case, device: str) -> None:
    """Nor do the strides, the offset and the sharing of q, k and v."""
    contiguous = dataclasses.replace(case, layout="contiguous")
    for layout in layouts.LAYOUTS:
        tensors, dout, dlse = tensors_of(contiguous, device, with_lse=True)
        if layout == "expanded":
            tensors[1:] = [t[:1].expand_as(t).contiguous() for t in tensors[1:]]
        want = run(contiguous, tensors, dout, dlse)
        got = run(case, layouts.lay_out(tensors, layout), dout, dlse)
        assert same(contiguous, tensors, got, want), layout


# ---- Under torch's transformations ---------------------------------------------------------------


def _leaves(case: Case, device: str) -> list[Tensor]:
    return [t.detach().requires_grad_() for t in cases.make(case, device)]


def check_checkpointed(case: Case, device: str, reentrant: bool) -> None:
    """Activation checkpointing, which computes o and lse again, changes no bit.

    Autograd's thread, which does so on a GPU, has a backend of its own: the function chooses this
    thread's.
    """
    leaves = _leaves(case, device)
    dout, dlse = cases.incoming(case, device, with_lse=True)
    choice = _C.backend()

    def call(*t: Tensor) -> tuple[Tensor, Tensor]:
        before = _C.backend()
        _C.set_backend(choice)
        try:
            return thunderkittens.attention(*t, **cases.options(case), return_lse=True)
        finally:
            _C.set_backend(before)

    want = torch.autograd.grad(call(*leaves), leaves, (dout, dlse))
    outputs = checkpoint(call, *leaves, use_reentrant=reentrant)
    torch.autograd.backward(outputs, (dout, dlse))
    assert same(case, leaves, [t.grad for t in leaves], want)


def check_compiled(case: Case, device: str, backend: str, dynamic: bool) -> None:
    """Compiled without a graph break, forward and backward: right, and eager's bits if ours."""
    torch._dynamo.reset()

    def step(*t: Tensor) -> Tensor:
        return thunderkittens.attention(*(2 * x for x in t), **cases.options(case))

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic, backend=backend)
    leaves = _leaves(case, device)
    dout, _ = cases.incoming(case, device, with_lse=False)
    got = torch.autograd.grad(compiled(*leaves), leaves, dout)
    want = torch.autograd.grad(step(*leaves), leaves, dout)
    if gradients_reference.is_ours(case, leaves):
        assert all(map(memory.bits_equal, got, want))
    twice = [(2 * t).detach() for t in leaves]  # exact, and so is the 2 on the way back
    found = gradients_reference.judged(case, twice, dout, None)
    gradients_reference.check(found, [t / 2 for t in got])


def check_autocast(case: Case, device: str, dtype: torch.dtype) -> None:
    """Autocast around backward(), of another dtype than the tensors', changes no bit."""
    leaves = _leaves(case, device)
    dout, dlse = cases.incoming(case, device, with_lse=True)
    outputs = cases.forward(case, *leaves)
    want = torch.autograd.grad(outputs, leaves, (dout, dlse), retain_graph=True)
    with torch.autocast(device, dtype):
        got = torch.autograd.grad(outputs, leaves, (dout, dlse))
    assert [t.dtype for t in got] == [case.dtype] * 3
    assert same(case, leaves, got, want)


def check_no_double_backward(case: Case, device: str) -> None:
    """A gradient that is differentiated says that it cannot be."""
    leaves = _leaves(case, device)
    o = thunderkittens.attention(*leaves, **cases.options(case))
    first = torch.autograd.grad(o.float().square().sum(), leaves, create_graph=True)
    with pytest.raises(NotImplementedError, match="^attention: double backward is not supported"):
        sum(t.float().sum() for t in first).backward()
