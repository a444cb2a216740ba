"""The steps of ring attention: which rows meet which keys in each, and how they add up."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from thunderkittens import _C
from thunderkittens.distributed._ring import Ring

_forward = torch.ops.thunderkittens.attention_forward.default
_backward = torch.ops.thunderkittens.attention_backward.default
_ROWS, _SUMS = -3, -1  # the dimension of rows of [B, S, H, D], and of log-sum-exps [B, H, S]


class Options(NamedTuple):
    """What all steps have in common, but for a mask."""

    causal: bool
    scale: float | None
    softcap: float
    cu_seqlens: Tensor | None
    max_seqlen: int | None

    def shared(self, q_halves: int = 1, k_halves: int = 1) -> dict[str, Any]:
        """Keywords of attention, of rows or keys of which 1 / halves is there."""
        found: dict[str, Any] = {"scale": self.scale, "softcap": self.softcap}
        for name, halves in (("q", q_halves), ("k", k_halves)):
            if self.cu_seqlens is not None:
                found[f"cu_seqlens_{name}"] = self.cu_seqlens // halves
            if self.max_seqlen is not None:
                found[f"max_seqlen_{name}"] = self.max_seqlen // halves
        return found


class _Half:
    """One of the two chunks of a zigzag, of each sequence."""

    def __init__(self, rows: int, second: bool, cu_seqlens: Tensor | None) -> None:
        self._first, self._count = second * (rows // 2), rows // 2
        self._index: Tensor | None = None  # of its rows, where sequences are packed
        if cu_seqlens is not None:
            ends = cu_seqlens.long()
            n = torch.arange(self._count, device=ends.device)
            sequence = torch.searchsorted(ends // 2, n, right=True)  # counted from 1
            begin, end = ends[sequence - 1], ends[sequence.clamp_max(len(ends) - 1)]
            self._index = n + begin - begin // 2 + (end - begin) // 2 * second

    def of(self, t: Tensor, dim: int) -> Tensor:
        """Its rows: a view, but of packed sequences a copy."""
        if self._index is None:
            return t.narrow(dim, self._first, self._count)
        return t.index_select(dim, self._index)

    def put_back(self, t: Tensor, dim: int, rows: Tensor) -> None:
        """Writes what `of` gave and what was changed in place, where that is a copy."""
        if self._index is not None:
            t.index_copy_(dim, self._index, rows)


class _All:
    """All rows: of a step that leaves out nothing."""

    def of(self, t: Tensor, dim: int) -> Tensor:
        """The tensor itself."""
        return t

    def put_back(self, t: Tensor, dim: int, rows: Tensor) -> None:
        """Nothing: `of` gives no copy."""


_Part = _All | _Half


class _Step(NamedTuple):
    """Of a rank's rows and of the keys that it has at the time, those that meet."""

    number: int
    rows: _Part
    keys: _Part
    options: dict[str, Any]


def _steps(q: Tensor, ring: Ring, options: Options) -> Iterator[_Step]:
    """Step i has the keys of rank − i."""
    everything = _All()
    halves = [_Half(q.size(_ROWS), second, options.cu_seqlens) for second in (False, True)]
    for i in range(ring.ranks):
        rows: _Part = everything
        keys: _Part = everything
        if options.causal and i > ring.rank:  # of a later rank: for the second chunk alone
            rows = halves[1]
        elif options.causal and i > 0:  # its second chunk is later than all rows
            keys = halves[0]
        shared = options.shared(1 + isinstance(rows, _Half), 1 + isinstance(keys, _Half))
        yield _Step(i, rows, keys, {"causal": options.causal and i == 0, **shared})


class RingAttention(torch.autograd.Function):
    """Both directions, of at least two ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sinks: Tensor | None,
        ring: Ring,
        options: Options,
    ) -> tuple[Tensor, Tensor]:
        pair = [k, v]
        for step in _steps(q, ring, options):
            coming = ring.shift(pair) if step.number + 1 < ring.ranks else None
            k_part, v_part = (step.keys.of(t, _ROWS) for t in pair)
            o_step, lse_step = _forward(
                step.rows.of(q, _ROWS),
                k_part,
                v_part,
                sinks=None if step.number else sinks,
                **step.options,
            )
            if step.number == 0:
                o, lse = o_step.to(lse_step.dtype, copy=True), lse_step
            else:
                _merge(o, lse, o_step, lse_step, step.rows)
            if coming is not None:
                pair = coming.wait()
        o = o.to(q.dtype)
        ctx.save_for_backward(q, k, v, sinks, o, lse)
        ctx.ring, ctx.options, ctx.backend = ring, options, _C.backend()
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
        before = _C.backend()
        _C.set_backend(ctx.backend)
        try:
            with torch.autocast(ctx.saved_tensors[0].device.type, enabled=False):
                return (*_gradients(ctx, do, dlse), None, None)
        finally:
            _C.set_backend(before)


def _merge(o: Tensor, lse: Tensor, o_step: Tensor, lse_step: Tensor, rows: _Part) -> None:
    """Adds a step's keys to some rows of o [B, S, H, D] and lse [B, H, S], in place."""
    so_far = rows.of(lse, _SUMS)
    joint = torch.logaddexp(so_far, lse_step)
    # A row without any key yet: exp(−inf − 0) = 0.
    share = (lse_step - joint.masked_fill(joint == -math.inf, 0)).exp()
    mixed = rows.of(o, _ROWS)
    mixed.lerp_(o_step.to(o.dtype), share.transpose(-1, -2).unsqueeze(-1))
    rows.put_back(o, _ROWS, mixed)
    so_far.copy_(joint)
    rows.put_back(lse, _SUMS, so_far)


def _gradients(ctx: Any, do: Tensor | None, dlse: Tensor | None) -> list[Tensor | None]:
    """Those of q, k, v and sinks that are needed."""
    q, k, v, sinks, o, lse = ctx.saved_tensors
    ring: Ring = ctx.ring
    needs = list(ctx.needs_input_grad[:4])
    needs[1] = needs[2] = needs[1] or needs[2]  # they travel together
    do = torch.zeros_like(o) if do is None else do
    pair, homeward = [k, v], None
    dq = dsinks = None
    for step in _steps(q, ring, ctx.options):
        coming = ring.shift(pair) if step.number + 1 < ring.ranks else None
        k_part, v_part = (step.keys.of(t, _ROWS) for t in pair)
        dq_step, dk_step, dv_step, dsinks_step = _backward(
            step.rows.of(do, _ROWS),
            None if dlse is None else step.rows.of(dlse, _SUMS),
            step.rows.of(q, _ROWS),
            k_part,
            v_part,
            step.rows.of(o, _ROWS),
            step.rows.of(lse, _SUMS),
            needs=[*needs[:3], needs[3] and step.number == 0],
            sinks=None if step.number else sinks,
            **step.options,
        )
        grads = [dk_step, dv_step]
        if step.number == 0:
            dq, dsinks = dq_step.to(lse.dtype, copy=True) if needs[0] else None, dsinks_step
            grads = [g.to(lse.dtype, copy=True) for g in grads] if needs[1] else []
        elif dq is not None:
            _add(dq, dq_step, step.rows)
        if homeward is not None:
            sums = homeward.wait()
            for total, grad in zip(sums, grads, strict=True):
                _add(total, grad, step.keys)
            grads = sums
        if needs[1]:
            homeward = ring.shift(grads)
        if coming is not None:
            pair = coming.wait()
    dk, dv = (None, None) if homeward is None else homeward.wait()
    found = zip((dq, dk, dv, dsinks), (q, k, v, sinks), ctx.needs_input_grad[:4], strict=True)
    return [t.to(like.dtype) if needed and t is not None else None for t, like, needed in found]


def _add(to: Tensor, part: Tensor, rows: _Part) -> None:
    """Adds to some rows, in place."""
    there = rows.of(to, _ROWS)
    there.add_(part)
    rows.put_back(to, _ROWS, there)
