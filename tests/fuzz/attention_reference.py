"""Attention in float64, and what roundings may do to it. (attentions.py, dot_products.py draw.)

Scores s, capped t, weights p = exp(t − lse); o = p v. Errors, with roundings u of float32 and h of
the 16-bit dtype:

- a score: of its sum of D products, and of the scale; of t by roundings of t, and of tanh;
- an exponential: its exponent's, and roundings of t − m, m being a number near the largest: η;
- o: Σ p η |v − o|; each p is rounded to 16 bits before it meets v (a random walk of p · (v − o)),
  and o is divided by the sum of the rounded ones; it cannot leave the range of the values;
- the backward computes p again from lse; δ = Σ do ∘ o − dlse has the errors of o; p and
  ds = p (do vᵀ − δ) are rounded to 16 bits, or not, before they meet k, q and do.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from tests.fuzz.arithmetic import Arithmetic
from tests.fuzz.case import Judged

MOST_EXPONENT = 300.0  # beyond, everything is right anyway
FLUSHED = torch.finfo(torch.float32).smallest_normal
CAPPED = 64.0  # tanh may be off by roundings of 1, times the cap, up to this one


@dataclasses.dataclass
class Problem:
    """One call, its tensors as [B, H, S, …] with all query heads, float64.

    Attributes:
        q: [B, Hk, G, Sq, D]; G query heads read one key head.
        k: [B, Hk, 1, Sk, D].
        v: [B, Hk, 1, Sk, Dv].
        seen: [Sq, Sk] or [B, 1, 1, Sq, Sk]: which keys a row sees.
        scale: Of the products.
        dtype: Of the op's tensors.
        softcap: 0 for none.
        sinks: [Hk, G], or None.
        generic: Whether the values are independent of one another.
        exact: Whether float32 holds all scores exactly.
        by_torch: Whether torch's fused attention may serve the call: its gradients on the CPU are
            sums of blocks, each sum rounded to 16 bits, and its products take subnormals for 0.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    seen: Tensor
    scale: float
    dtype: torch.dtype
    softcap: float = 0.0
    sinks: Tensor | None = None
    generic: bool = True
    exact: bool = False
    by_torch: bool = False

    def __post_init__(self) -> None:
        self.a = a = Arithmetic.of(self.dtype)
        info = torch.finfo(self.dtype)
        narrow = info.bits == 16
        self.h = info.eps / 2 if narrow else 0.0
        # Of bfloat16 subnormal numbers are float32's, too, which a GPU flushes to zero.
        self.step = info.smallest_normal * info.eps if self.dtype == torch.float16 else a.tiny
        u, keys = a.unit, self.k.shape[-2]
        s = self.q @ self.k.mT * self.scale
        sizes = self.q.abs() @ self.k.abs().mT * abs(self.scale)
        self.overflows = ((sizes > a.most) & self.seen).any(-1, keepdim=True)
        error = torch.zeros_like(s) if self.exact else (a.sum(self.q.shape[-1]) + 2 * u) * sizes
        self.slope = self.slope_error = None
        if self.softcap > 0:
            bent = (s / self.softcap).tanh()
            self.slope = 1 - bent.square()
            s = bent * self.softcap
            error = error + 8 * u * s.abs() + 4 * u * min(self.softcap, CAPPED)
            self.slope_error = 8 * u + 2 * error / self.softcap
        s = s.masked_fill(~self.seen, -math.inf)
        top = s.amax(-1, keepdim=True) if keys else s.new_full((*s.shape[:-1], 1), -math.inf)
        largest = top
        if self.sinks is not None:
            sink = self.sinks[..., None, None]
            top = torch.maximum(top, sink)
        self.blind = ~self.seen.expand(s.shape).any(-1, keepdim=True)
        anchor = top.masked_fill(top == -math.inf, 0.0)
        e = (s - anchor).exp()
        total = e.sum(-1, keepdim=True)
        if self.sinks is not None:
            total = total + (sink - anchor).exp()
        self.no_sum = total == 0
        self.total = total.masked_fill(self.no_sum, 1.0)
        self.p = e / self.total
        # What a weight may lose as a subnormal of 16 bits, in units of the row's largest one.
        self.lost = 4 * self.step * (self.h > 0) * (largest - anchor).exp() / self.total
        away = torch.where(self.seen, s - anchor, 0.0).abs()
        self.exponent = s - anchor - self.total.log()  # of p
        self.eta = torch.where(self.seen, error, 0.0) + 4 * u * (16 + away)
        self.p_error = self._shifted(self.eta)
        self.lse = (self.total.log() + anchor).masked_fill(self.no_sum, -math.inf)
        spread = self.p_error.sum(-1, keepdim=True)
        sizes = anchor.abs() + self.lse.abs().nan_to_num(posinf=0.0)
        self.lse_error = spread.log1p() + a.sum(keys) + 8 * u * (1 + sizes)
        self.o = self.p @ self.v

    def _shifted(self, shift: Tensor) -> Tensor:
        """By how much p grows where its exponent does by `shift`."""
        return (self.exponent + shift).clamp(max=MOST_EXPONENT).exp() - self.p

    # ---- Forward --------------------------------------------------------------------------------

    def output(self) -> Judged:
        """o, [B, Hk, G, Sq, Dv]."""
        a, p, v, o = self.a, self.p, self.v, self.o
        sizes = p @ v.abs()
        off = self.p_error
        error = (
            off @ v.abs()
            + o.abs() * off.sum(-1, keepdim=True)
            + a.sum(v.shape[-2]) * (sizes + o.abs())
            + self._rounded_weights()
        )
        error = error + self._lost_values()
        error = error.nan_to_num(math.inf, math.inf)
        if v.shape[-2]:
            error = torch.minimum(error, 2.01 * v.abs().amax(-2, keepdim=True).expand_as(o))
            # Before they are divided by their sum, the weighted values may overflow.
            largest = 2.0**9 * self.total * sizes
            error = torch.where(self.overflows | (largest > a.most), math.inf, error)
        self.o_error = error
        bound = error + self._final(o, error) + self.h * o.abs()
        return Judged(o, torch.where(self.blind, 0.0, bound))

    def _lost_values(self) -> Tensor:
        return self.lost * (self.seen.double().expand(self.p.shape) @ self.v.abs())

    def _rounded_weights(self) -> Tensor:
        """Σ p · δ · (v − o), each |δ| ≤ h."""
        p, v, o = self.p, self.v, self.o
        worst = self.h * (p @ v.abs() + o.abs())
        if not self.generic:
            return worst
        square = p.square()
        total = square @ v.square() + 2 * o.abs() * (square @ v.abs())
        total = total + o.square() * square.sum(-1, keepdim=True)
        return torch.minimum(worst, 3 * self.h * total.sqrt())

    def log_sum(self) -> Judged:
        """lse, [B, Hk, G, Sq]."""
        bound = torch.where(self.overflows, math.inf, self.lse_error.nan_to_num(math.inf))
        bound = torch.where(self.lse == -math.inf, 0.0, bound)
        return Judged(self.lse.squeeze(-1), bound.squeeze(-1))

    def _final(self, value: Tensor, error: Tensor) -> Tensor:
        info = torch.finfo(self.dtype)
        return info.eps / 2 * (value.abs() + error) + self.step

    # ---- Backward -------------------------------------------------------------------------------

    def gradients(self, do: Tensor, dlse: Tensor | None) -> dict[str, Judged]:
        """Of q, k, v and sinks, from do [B, Hk, G, Sq, Dv] and dlse [B, Hk, G, Sq]."""
        self.output()
        a, p, h = self.a, self.p, self.h
        delta = (do * self.o).sum(-1, keepdim=True)
        delta_error = a.sum(do.shape[-1]) * (do * self.o).abs().sum(-1, keepdim=True)
        if dlse is not None:
            delta = delta - torch.where(self.no_sum, 0.0, dlse.unsqueeze(-1))
        products = do @ self.v.mT
        ds = p * (products - delta)
        delta_error = delta_error + self._error_of_o_in_delta(do, ds)
        # A row without any key has no lse, and no weights.
        p_error = self._shifted(self.eta + self.lse_error.masked_fill(self.no_sum, 0.0))
        weight = p + p_error  # what the errors of the rest meet
        product_error = a.sum(do.shape[-1]) * (do.abs() @ self.v.abs().mT) + a.unit * delta.abs()
        if self.by_torch:
            product_error = product_error + FLUSHED * do.abs().sum(-1, keepdim=True)
        error = (products - delta).abs() * p_error + weight * product_error
        if self.slope is not None:
            error = error * self.slope + (ds.abs() + error) * self.slope_error
            weight = weight * (self.slope + self.slope_error)
            ds = ds * self.slope
        error = error + 2 * self.step * (h > 0)
        results = {
            "q": self._of_queries(ds, error, weight, delta_error),
            "k": self._of_keys(ds, error, weight, delta_error),
            "v": self._of_values(do, p_error),
        }
        if self.sinks is not None:
            results["sinks"] = self._of_sinks(delta, delta_error)
        free = self.overflows.any() | ~torch.isfinite(self.o_error).all()
        return {n: Judged(j.want, torch.where(free, math.inf, j.bound)) for n, j in results.items()}

    def _error_of_o_in_delta(self, do: Tensor, ds: Tensor) -> Tensor:
        """Σ do · (error of o): of its weights, Σ ds · δ; of its own rounding; and of float32."""
        p, v = self.p, self.v
        off = self.p_error
        wide = off @ v.abs() + self.o.abs() * off.sum(-1, keepdim=True)
        wide = wide + self.a.sum(v.shape[-2]) * (p @ v.abs() + self.o.abs()) + self.step
        wide = wide + self._lost_values()
        error = (do.abs() * wide).sum(-1, keepdim=True)
        terms = do * self.o
        if self.generic:
            squares = terms.square().sum(-1, keepdim=True), ds.square().sum(-1, keepdim=True)
            return error + 3 * self.h * (2 * squares[0].sqrt() + squares[1].sqrt())
        rounded = (do.abs() @ self.v.abs().mT * p).sum(-1, keepdim=True)
        return error + self.h * (3 * terms.abs().sum(-1, keepdim=True) + rounded)

    def _sum(self, terms: Tensor, error: Tensor, other: Tensor) -> Tensor:
        """The error of terms @ other, where each term has its own, and may be rounded before."""
        bound = error @ other.abs() + self.a.sum(terms.shape[-1]) * (terms.abs() @ other.abs())
        worst = self.h * (terms.abs() @ other.abs())
        if self.by_torch:
            flushed = FLUSHED * terms.abs().sum(-1, keepdim=True)
            return bound + 4 * worst + flushed
        if self.generic:
            walked = 3 * self.h * (terms.square() @ other.square()).sqrt()
            worst = torch.minimum(worst, walked)
        return bound + worst

    def _of_queries(self, ds: Tensor, error: Tensor, weight: Tensor, delta: Tensor) -> Judged:
        scale = abs(self.scale)
        want = ds @ self.k * self.scale
        # δ is one number for all keys of a row, so its error meets their sum.
        common = self.p if self.slope is None else self.p * self.slope
        bound = self._sum(ds, error, self.k) + delta * (common @ self.k).abs()
        bound = bound + delta * ((weight - common).abs() @ self.k.abs())
        bound = torch.where(self.blind, 0.0, bound * scale)
        return self._judged(want, bound)

    def _of_keys(self, ds: Tensor, error: Tensor, weight: Tensor, delta: Tensor) -> Judged:
        each = ds.mT @ self.q * self.scale
        bound = self._sum(ds.mT, error.mT, self.q)
        moved = (weight * delta).mT
        if self.generic:
            bound = bound + (moved.square() @ self.q.square()).sqrt()
        else:
            bound = bound + moved @ self.q.abs()
        return self._of_group(each, bound * abs(self.scale))

    def _of_values(self, do: Tensor, error: Tensor) -> Judged:
        error = error + 2 * self.step * (self.h > 0)
        return self._of_group(self.p.mT @ do, self._sum(self.p.mT, error.mT, do))

    def _of_group(self, each: Tensor, bound: Tensor) -> Judged:
        """Sums over the query heads of a key head, of which each may be rounded before."""
        bound = bound + (self.h * each.abs() + self.step) * (each.shape[2] > 1)
        return self._judged(each.sum(2, keepdim=True), bound.sum(2, keepdim=True))

    def _of_sinks(self, delta: Tensor, delta_error: Tensor) -> Judged:
        assert self.sinks is not None
        u, sinks = self.a.unit, self.sinks[..., None, None]
        share = torch.where(self.no_sum, 0.0, (sinks - self.lse).exp())
        terms = share * delta
        away = (sinks - self.lse).abs().nan_to_num(posinf=0.0)
        error = terms.abs() * (self.lse_error + 8 * u * (2 + away)).clamp(max=MOST_EXPONENT).expm1()
        moved = share * delta_error
        dims = (0, 3, 4)
        spread = moved.square().sum(dims).sqrt() if self.generic else moved.sum(dims)
        count = terms.shape[0] * terms.shape[3]
        bound = error.sum(dims) + spread + self.a.sum(count) * terms.abs().sum(dims) + self.a.tiny
        return Judged(-terms.sum(dims), bound)

    def _judged(self, want: Tensor, bound: Tensor) -> Judged:
        bound = bound + self._final(want, bound)
        return Judged(want, bound.nan_to_num(math.inf, math.inf))
