"""What attention_cases.py compares with: float64, and how far a result may be from it."""

import math
from typing import TYPE_CHECKING

import torch

from thunderkittens.testing import assert_close, tolerance

if TYPE_CHECKING:
    from tests.families.attention.cases import Case

FP32, FP64 = torch.float32, torch.float64


SMALL_CAP = 64.0  # up to here the kernel's tanh is right relative to 1


class Reference:
    """attention in float64 on the rounded inputs, with the quantities that its bounds are made of.

    All are [B, Hk, group, Sq, …], of packed sequences with B = 1.
    """

    def __init__(self, case: "Case", q, k, v, *extra) -> None:
        self.case = case
        q, k, v = (self.dense(t.detach().double()) for t in (q, k, v))
        if case.bounded:  # what does not exist may be NaN
            stray = ~case.exist().to(q.device)
            k, v = (t.masked_fill(stray[..., None, None], 0) for t in (k, v))
        self.scale = 1 / math.sqrt(case.head_dim) if case.scale is None else case.scale
        self.q = self.by_key_head(q)
        self.k, self.v = (t.permute(0, 2, 1, 3).unsqueeze(2) for t in (k, v))
        score = self.q @ self.k.transpose(-1, -2) * self.scale
        size = self.q.abs() @ self.k.abs().transpose(-1, -2) * self.scale
        # The bounds allow 8 units of the largest score; a sum of head_dim terms may be off by
        # `accumulation`, in the weight's numerator and in its denominator; and tanh by as much of
        # itself, or of 1 where the cap is small.
        units = 2 * tolerance.accumulation(case.head_dim) / (8 * tolerance.unit(FP32))
        largest = float(size.max() if size.numel() else 0)
        self.score = units * largest + min(case.softcap, max(largest, SMALL_CAP))
        self.slope = torch.ones_like(score)
        if case.softcap > 0:
            bent = torch.tanh(score / case.softcap)
            score, self.slope = case.softcap * bent, 1 - bent.square()
        seen = case.seen().to(q.device)
        score = score.masked_fill(~seen, -math.inf)
        self.sink = torch.full((case.heads,), -math.inf, dtype=FP64, device=q.device)
        if case.sinks is not None:
            self.sink = extra[0].detach().double()
        self.sink = self.sink.view(case.key_heads, case.group, 1, 1)
        self.lse = torch.logaddexp(score.logsumexp(-1, keepdim=True), self.sink)
        self.weights = (score - self.lse).nan_to_num(nan=-math.inf).exp()
        self.o = self.weights @ self.v
        self.spread = self.weights @ self.v.abs()
        # Weights are rounded where the largest is about 1: near zero, by half of what is smallest.
        largest = score.amax(-1, keepdim=True) if case.keys else self.lse
        share = (largest - self.lse).nan_to_num(nan=-math.inf).exp()
        self.lost = tolerance.floor(case.dtype) / 2 * share * (seen.double() @ self.v.abs())

    def dense(self, t):
        """Packed tensors as those of one batch."""
        return t.unsqueeze(0) if self.case.packed else t

    def by_key_head(self, t):
        """[B, Sq, Hq, …] → [B, Hk, group, Sq, …]."""
        return t.transpose(1, 2).unflatten(1, (self.case.key_heads, self.case.group))

    def as_output(self, t):
        """The inverse, packed again."""
        t = t.flatten(1, 2).transpose(1, 2)
        return t.squeeze(0) if self.case.packed else t

    def check(self, o, lse=None, parts=1) -> None:
        """Asserts o and lse, element by element and row by row.

        Of several parts of the keys each one's o is rounded, and joins the others in float32.
        """
        want, spread = self.as_output(self.o), self.as_output(self.spread)
        assert (o.dtype, o.is_contiguous()) == (self.case.dtype, True)
        bound = tolerance.attention(want, spread, o.dtype, self.case.keys, self.score)
        if parts > 1:
            bound += (2 * tolerance.unit(o.dtype) + tolerance.accumulation(parts)) * spread
        assert_close(o, want, bound + self.as_output(self.lost), "o")
        if lse is None:
            return
        assert (lse.dtype, lse.is_contiguous()) == (FP32, True)
        want = self.lse.flatten(1, 2).squeeze(-1)
        want = want.squeeze(0) if self.case.packed else want
        size = want.abs().nan_to_num(posinf=0.0)
        assert_close(lse, want, 1e-5 + 1e-6 * size + 8 * tolerance.unit(FP32) * self.score, "lse")

    def check_gradients(self, dout, dlse, dq, dk, dv, dsinks=None, parts=1) -> None:
        """Asserts the gradients that are not None.

        What rounds to 16 bits on the way: o (in Σ do ∘ o), the weights, ds, a query head's own part
        of dk and dv, and the result: two units each of S, the same sums over absolute values; and
        where there are several parts, each part's. Near zero the weights and ds are off by half of
        what is smallest.
        """
        case, unit = self.case, tolerance.unit(self.case.dtype)
        rounding = 8 * tolerance.unit(FP32) * (4 + self.score)  # of a weight
        dout = self.by_key_head(self.dense(dout.double()))
        dp, size = dout @ self.v.transpose(-1, -2), dout.abs() @ self.v.abs().transpose(-1, -2)
        delta = (dout * self.o).sum(-1, keepdim=True)
        delta_size = (dout.abs() * self.o.abs()).sum(-1, keepdim=True)
        if dlse is not None:
            dlse = self.dense(dlse.double()).unflatten(1, (case.key_heads, case.group))
            delta, delta_size = delta - dlse.unsqueeze(-1), delta_size + dlse.abs().unsqueeze(-1)
        ds = self.weights * (dp - delta) * self.slope * self.scale
        # 1 − tanh² is off by `rounding`, however small it is.
        lost = rounding / (6 * unit) / min(1, case.softcap) if case.softcap > 0 else 0
        ds_size = self.weights * (size + delta_size) * (self.slope + lost) * self.scale
        # exp2 in float32 gives 0 instead of subnormal numbers, on a GPU.
        least = max(tolerance.floor(case.dtype) / 2, torch.finfo(FP32).tiny)
        least = case.seen().to(ds.device).double() * least
        ds_size = ds_size + least * self.scale / (6 * unit)
        weights = self.weights + least / (6 * unit)
        share = (self.sink - self.lse).nan_to_num(nan=-math.inf).exp()
        wants = (
            (dq, self.as_output(ds @ self.k), self.as_output(ds_size @ self.k.abs()), "dq"),
            (dk, *self.over_group(ds, ds_size, self.q), "dk"),
            (dv, *self.over_group(self.weights, weights, dout), "dv"),
            (dsinks, -self.over_rows(share * delta), self.over_rows(share * delta_size), "dsinks"),
        )
        fixed = self.fixed_point(dout, delta)
        units = 6 if parts == 1 else 8
        slack = tolerance.accumulation(max(case.rows, case.keys) * case.group * case.batch)
        for got, want, total, name in wants:
            if got is None:
                continue
            dtype = case.sinks if name == "dsinks" else case.dtype
            bound = (units * unit + slack + rounding) * total
            bound += 2 * tolerance.unit(dtype) * want.abs()
            bound += fixed if name == "dq" else 0
            assert got.dtype == dtype, name
            assert_close(got, want, bound + tolerance.floor(dtype), name)

    def fixed_point(self, dout, delta):
        """What dq loses where its kernel adds up integers, one rounding for each tile of keys.

        Units of a row are at most 2⁻²⁹ of what bounds its dq: Σ p (|do| max |v| + |delta|) max |k|,
        the largest of its sequence's keys.
        """
        case = self.case
        if case.dtype not in (torch.float16, torch.bfloat16) or 0 in (case.keys, case.batch):
            return 0.0
        weight = self.weights.sum(-1, keepdim=True) + 2**-15 * (1 + self.lse.abs())
        norms = self.v.norm(dim=-1, keepdim=True)
        largest = [norms.new_zeros(*norms.shape[:-2], case.rows, 1) for _ in "vk"]
        for rows, keys in case.sequences():
            if keys.start == keys.stop:
                continue
            for of_rows, t in zip(largest, (norms, self.k), strict=True):
                of_rows[..., rows, :] = t[..., keys, :].abs().amax((-1, -2), keepdim=True)
        ds = dout.norm(dim=-1, keepdim=True) * largest[0] + delta.abs()
        dq = weight.nan_to_num(posinf=0.0).clamp(max=1) * ds * largest[1] * self.scale
        keys = 64 if max(case.head_dim, case.values) > 128 else 128
        return self.as_output(dq * 2**-30 * (case.keys / keys + len(case.sequences()) + 1))

    def over_rows(self, t):
        """Σ over batches and rows, [Hq]."""
        return t.sum((0, 3)).flatten()

    def over_group(self, left, size, right):
        """Σ leftᵀ right over the query heads of a key head, and that of absolute values."""
        sums = (left.transpose(-1, -2) @ right, size.transpose(-1, -2) @ right.abs())
        sums = [t.sum(2).transpose(1, 2) for t in sums]
        return [t.squeeze(0) for t in sums] if self.case.packed else sums
