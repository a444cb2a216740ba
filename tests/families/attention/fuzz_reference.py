"""Attention in float64, and what roundings may do to it. (fuzz.py, fuzz_dot_products.py draw.)

Scores s, capped t, weights p = exp(t − lse); o = p v. Errors, with roundings u of float32 and h of
the 16-bit dtype:

- a score: of its sum of D products, and of the scale; of t by roundings of t, and of tanh;
- an exponential: its exponent's, and roundings of t − m, m being a number near the largest: η;
- o: Σ p η |v − o|; each p is rounded to 16 bits before it meets v (a random walk of p · (v − o)),
  and o is divided by the sum of the rounded ones; it cannot leave the range of the values;
- the backward computes p again from lse; δ = Σ do ∘ o − dlse has the errors of o; p and
  ds = p (do vᵀ − δ) are rounded to 16 bits, or not, before they meet k, q and do.

Where one of these may overflow its dtype, its error is infinite, and so is that of all that is
computed from it: 0 · ∞ is NaN here as in the kernels, and a bound of NaN becomes ∞ in the end.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from tests.fuzz.arithmetic import Arithmetic, walk
from tests.fuzz.case import Judged

FLUSHED = torch.finfo(torch.float32).smallest_normal
INTEGER_KEYS = 128  # over which dq is added up in float32, where it is added up in integers then
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
        generic: Whether the weights are unrelated numbers, whatever v holds.
        generic_values: Whether v's are, and so the roundings of o.
        exact: Whether float32 holds all scores exactly.
        by_torch: Whether torch computes all of it. Its products take subnormals for 0.
        fused: Whether torch's fused attention may compute it, or its gradients: what that rounds to
            16 bits is float32 elsewhere. Its gradients on the CPU are sums of blocks, each sum
            rounded to 16 bits.
        sink_dtype: Of sinks and their gradient.
        sink_parts: Of how many sums, each rounded to that, the gradient of sinks is the sum.
        integer_dq: Whether dq is added up in integers, as our backward's kernel does.
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
    generic_values: bool = True
    exact: bool = False
    by_torch: bool = False
    fused: bool = True
    sink_dtype: torch.dtype = torch.float32
    sink_parts: int = 1
    integer_dq: bool = False

    def __post_init__(self) -> None:
        self.a = a = Arithmetic.of(self.dtype)
        info = torch.finfo(self.dtype)
        narrow = info.bits == 16
        # Of the forward's weights, and of o as its backward finds it; and of what that computes.
        self.h = info.eps / 2 if narrow and (self.fused or not self.by_torch) else 0.0
        self.h_back = self.h if self.fused else 0.0
        self.most = info.max if self.h_back > 0 else a.most  # of what is rounded to 16 bits
        # Of bfloat16 subnormal numbers are float32's, too, which a GPU flushes to zero.
        self.step = info.smallest_normal * info.eps if self.dtype == torch.float16 else a.tiny
        u, keys = a.unit, self.k.shape[-2]
        s = self.q @ self.k.mT * self.scale
        sizes = self.q.abs() @ self.k.abs().mT * abs(self.scale)
        self.overflows = ((sizes > a.most) & self.seen).any(-1, keepdim=True)
        error = torch.zeros_like(s) if self.exact else self._product(sizes)
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
        self.p_error = self._grown(self.exponent, self.eta)
        self.lse = (self.total.log() + anchor).masked_fill(self.no_sum, -math.inf)
        spread = self.p_error.sum(-1, keepdim=True).log1p()
        if keys:  # lse moves by no more than the score that moves most
            spread = torch.minimum(spread, self.eta.amax(-1, keepdim=True))
        sizes = anchor.abs() + self.lse.abs().nan_to_num(posinf=0.0)
        self.lse_error = spread + a.sum(keys, self.generic) + 8 * u * (1 + sizes)
        self.lse_error = torch.where(self.overflows, math.inf, self.lse_error)
        self.o = self.p @ self.v

    def _product(self, sizes: Tensor) -> Tensor:
        """The error of the scaled products of q and k, whose absolute values add up to `sizes`."""
        return (self.a.sum(self.q.shape[-1], self.generic) + 2 * self.a.unit) * sizes

    def _grown(self, exponent: Tensor, shift: Tensor) -> Tensor:
        """By how much e^exponent grows where that does by `shift`; infinite where it overflows."""
        last, end = math.log(self.a.most), exponent + shift
        return torch.where(end <= last, end.clamp(max=last).exp() - exponent.exp(), math.inf)

    def _fitting(self, value: Tensor, error: Tensor, most: float) -> Tensor:
        """The error, infinite where it takes a number beyond `most`, or is NaN."""
        return torch.where(value.abs() + error <= most, error, math.inf)

    # ---- Forward --------------------------------------------------------------------------------

    def output(self) -> Judged:
        """o, [B, Hk, G, Sq, Dv]."""
        a, p, v, o = self.a, self.p, self.v, self.o
        sizes = p @ v.abs()
        off = self.p_error
        error = (
            off @ v.abs()
            + o.abs() * off.sum(-1, keepdim=True)
            + a.sum(v.shape[-2], self.generic) * (sizes + o.abs())
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
        bound = torch.where(self.lse == -math.inf, 0.0, self.lse_error.nan_to_num(math.inf))
        return Judged(self.lse.squeeze(-1), bound.squeeze(-1))

    def _final(self, value: Tensor, error: Tensor) -> Tensor:
        info = torch.finfo(self.dtype)
        return info.eps / 2 * (value.abs() + error) + self.step

    # ---- Backward -------------------------------------------------------------------------------

    def gradients(self, do: Tensor, dlse: Tensor | None) -> dict[str, Judged]:
        """Of q, k, v and sinks, from do [B, Hk, G, Sq, Dv] and dlse [B, Hk, G, Sq]."""
        self.output()
        a, p = self.a, self.p
        delta = (do * self.o).sum(-1, keepdim=True)
        chain = a.sum(do.shape[-1], self.generic_values)
        sizes = do.abs() @ self.v.abs().mT
        delta_error = chain * (p * sizes).sum(-1, keepdim=True)  # also as Σ p · (do vᵀ)
        if dlse is not None:
            delta = delta - torch.where(self.no_sum, 0.0, dlse.unsqueeze(-1))
        products = do @ self.v.mT
        ds = p * (products - delta)
        delta_error = delta_error + self._error_of_o_in_delta(do, products)
        # A row without any key has no lse, and no weights.
        p_error = self.eta + self.lse_error.masked_fill(self.no_sum, 0.0)
        p_error = self._grown(self.exponent, p_error) + FLUSHED
        weight = p + p_error  # what the errors of the rest meet
        product_error = chain * sizes + a.unit * delta.abs()
        if self.by_torch:
            product_error = product_error + FLUSHED * do.abs().sum(-1, keepdim=True)
        product_error = self._fitting(sizes + delta.abs(), product_error, a.most)
        error = (products - delta).abs() * p_error + weight * product_error
        if self.slope is not None:
            error = error * self.slope + (ds.abs() + error) * self.slope_error
            weight = weight * (self.slope + self.slope_error)
            ds = ds * self.slope
        error = error + 2 * self.step * (self.h_back > 0)
        fits = (ds.abs() + error + weight * delta_error) <= self.most
        error = torch.where(fits, error, math.inf)
        results = {
            "q": self._of_queries(ds, error, weight, delta_error, self._steps(do, delta)),
            "k": self._of_keys(ds, error, weight, delta_error),
            "v": self._of_values(do, self._fitting(p, p_error, self.most)),
        }
        if self.sinks is not None:
            results["sinks"] = self._of_sinks(delta, delta_error)
        return results

    def _error_of_o_in_delta(self, do: Tensor, products: Tensor) -> Tensor:
        """Σ do · (error of o): of its weights, of its own rounding, and of float32.

        Each weight's δ moves it by p · δ · (do · v − do · o), or by p · δ · do · v where o is
        divided by the sum of the unrounded ones, as by torch and by some of the kernels. Of o's own
        roundings all may have one sign, as where v is constant, and so is o.
        """
        p, v, h = self.p, self.v, self.h
        off = self.p_error
        wide = off @ v.abs() + self.o.abs() * off.sum(-1, keepdim=True)
        wide = wide + self.a.sum(v.shape[-2], self.generic) * (p @ v.abs() + self.o.abs())
        wide = wide + self.step + self._lost_values()
        error = (do.abs() * wide).sum(-1, keepdim=True)
        terms = do * self.o
        total = terms.sum(-1, keepdim=True)
        moved = p * torch.maximum(products.abs(), (products - total).abs())
        return (
            error * (1 + h)
            + self._walked(terms, self.generic and self.generic_values)
            + self._walked(moved, self.generic)
        )

    def _walked(self, terms: Tensor, generic: bool) -> Tensor:
        """The error of the sum of rows whose elements were each rounded to 16 bits."""
        return walk(self.h, terms, -1, generic).unsqueeze(-1)

    def _sum(self, terms: Tensor, error: Tensor, other: Tensor, scale: float = 1.0) -> Tensor:
        """The error of scale · terms @ other; each term has its own, and may be rounded before."""
        sizes, off = terms.abs() @ other.abs(), error @ other.abs()
        bound = off + self.a.sum(terms.shape[-1], self.generic) * sizes
        if self.by_torch:
            flushed = FLUSHED * terms.abs().sum(-1, keepdim=True)
            # The sums of blocks are rounded to 16 bits: one may overflow where the whole does not.
            bound = scale * (bound + 4 * self.h_back * sizes)
            bound = self._fitting(scale * sizes, bound, self.most)
            return self._fitting(sizes, bound + scale * flushed, self.a.most)
        h = self.h_back
        walked = h * sizes
        if self.generic:
            walked = torch.minimum(walked, 3 * h * (terms.square() @ other.square()).sqrt())
        return scale * self._fitting(sizes, bound + walked, self.a.most)

    def _steps(self, do: Tensor, delta: Tensor) -> Tensor | float:
        """What dq / scale loses in integers, each row's units being a power of two of its own.

        |Σ p (do · v − δ) k| ≤ (|do|₂ · max |v|₂ + |δ|) · max |k|, the largest of all keys of the
        sequence, at most of the head: that is less than 2³⁰ units. Each sum over INTEGER_KEYS keys
        is off by half a unit.
        """
        keys = self.k.shape[-2]
        if not self.integer_dq or keys == 0:
            return 0.0

        def norm(t: Tensor) -> Tensor:  # or more than it, where float32 has not its square
            square, width = t.square().sum(-1, keepdim=True), t.shape[-1]
            most = t.abs().amax(-1, keepdim=True) * math.sqrt(width)
            return torch.where((square > 1e-29) & (square < 1e29), square.sqrt(), most)

        of_v = norm(self.v).amax(-2, keepdim=True)
        of_k = self.k.abs().amax((-2, -1), keepdim=True)
        # Where a sink has most of a row's weight, the others add up to little.
        spread = self.p.sum(-1, keepdim=True) + 2.0**-15 * (1 + self.lse.abs().nan_to_num(posinf=0))
        bound = (norm(do) * of_v + delta.abs()) * of_k * spread.clamp(max=1.0)
        unit = 1.001 * 2.0**-29 * bound + FLUSHED
        return self._fitting(bound, unit * math.ceil(keys / INTEGER_KEYS) / 2, self.a.most)

    def _of_queries(
        self, ds: Tensor, error: Tensor, weight: Tensor, delta: Tensor, steps: Tensor | float
    ) -> Judged:
        scale = abs(self.scale)
        want = ds @ self.k * self.scale
        # δ is one number for all keys of a row, so its error meets their sum.
        common = self.p if self.slope is None else self.p * self.slope
        bound = delta * ((common @ self.k).abs() + (weight - common).abs() @ self.k.abs())
        bound = self._sum(ds, error, self.k, scale) + (bound + steps) * scale
        bound = torch.where(self.blind, 0.0, bound)
        return self._judged(want, bound)

    def _of_keys(self, ds: Tensor, error: Tensor, weight: Tensor, delta: Tensor) -> Judged:
        each, scale = ds.mT @ self.q * self.scale, abs(self.scale)
        moved = (weight * delta).mT
        if self.generic and self.generic_values:
            bound = (moved.square() @ self.q.square()).sqrt()
        else:
            bound = moved @ self.q.abs()
        return self._of_group(each, self._sum(ds.mT, error.mT, self.q, scale) + bound * scale)

    def _of_values(self, do: Tensor, error: Tensor) -> Judged:
        error = error + 2 * self.step * (self.h_back > 0)
        return self._of_group(self.p.mT @ do, self._sum(self.p.mT, error.mT, do))

    def _of_group(self, each: Tensor, bound: Tensor) -> Judged:
        """Sums over the query heads of a key head, of which each may be rounded before."""
        if each.shape[2] > 1 and self.h_back > 0:
            bound = self._fitting(each, bound + self.h_back * each.abs() + self.step, self.most)
        return self._judged(each.sum(2, keepdim=True), bound.sum(2, keepdim=True))

    def _of_sinks(self, delta: Tensor, delta_error: Tensor) -> Judged:
        assert self.sinks is not None
        sinks, info = self.sinks[..., None, None], torch.finfo(self.sink_dtype)
        exponent = (sinks - self.lse).masked_fill(self.no_sum, -math.inf)
        away = exponent.abs().masked_fill(self.no_sum, 0.0)
        share = exponent.exp()
        shift = self.lse_error.masked_fill(self.no_sum, 0.0) + 8 * self.a.unit * (2 + away)
        share_error = self._grown(exponent, shift)
        terms, error = share * delta, share_error * delta.abs()
        moved = (share + share_error) * delta_error
        dims = (0, 3, 4)
        generic = self.generic and self.generic_values
        spread = moved.square().sum(dims).sqrt() if generic else moved.sum(dims)
        sizes, count = terms.abs().sum(dims), terms.shape[0] * terms.shape[3]
        bound = error.sum(dims) + spread + self.a.sum(count, self.generic) * sizes + self.a.tiny
        # Each part is rounded, and then each sum of two.
        want, parts = -terms.sum(dims), self.sink_parts
        rounded = want.abs() if parts == 1 else (2 * parts - 1) * sizes
        bound = bound + info.eps / 2 * (rounded + (2 * parts - 1) * bound)
        bound = bound + parts * info.smallest_normal * info.eps / 2
        return Judged(want, bound.nan_to_num(math.inf, math.inf))

    def _judged(self, want: Tensor, bound: Tensor) -> Judged:
        bound = bound + self._final(want, bound)
        return Judged(want, bound.nan_to_num(math.inf, math.inf))
