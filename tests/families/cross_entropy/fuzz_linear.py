"""linear_cross_entropy: the logits x · weightᵀ + bias, their loss, and the gradients of all three.

A logit is a float32 sum of H products, then rounded to x's dtype; the gradient of the logits is
that of fuzz.py with this error, rounded to x's dtype as well, and multiplied into sums over V
columns or over all rows. Roundings to 16 bits are independent where the values are: walk().
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

import thunderkittens
from tests.families.cross_entropy import fuzz as losses
from tests.fuzz.arithmetic import Arithmetic, walk
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import DTYPES, FP64, GENERIC, Draw

OPS = ("linear_cross_entropy",)
# A GPU's cases: rows or logits that are alike, and logits beyond float16's range.
LARGE = (910000146, 77000544, 910000155)
READS_ON_A_CPU = True  # whether targets are in range
WITHOUT = ("tiny", "denormal", "huge", "edge", "offset", "negative", "mixed rows")


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    small = not draw.large
    width = draw.size(48 if small else 512)
    vocabulary = draw.size(96 if small else 4096, least=2)
    rows = draw.leading(24 if small else 512)
    options = losses.Options.drawn(draw)
    regimes = [draw.regime(without=WITHOUT) for _ in range(2)]
    scale = width**-0.5 * draw.choice((0.5, 1.0, 3.0))
    values = {
        "x": draw.values((*rows, width), dtype, regimes[0]),
        "weight": (draw.values((vocabulary, width), dtype, regimes[1]) * scale).to(dtype),
    }
    if draw.chance(0.4):
        values["bias"] = draw.values((vocabulary,), dtype, "normal")
    targets = losses.drawn_targets(draw, rows, vocabulary, options.ignore_index)
    inputs = {name: draw.place(v, expand=True) for name, v in values.items()}
    values = {name: inputs[name].values for name in values}
    inputs["targets"] = losses.in_dtype(draw, draw.place(targets, expand=True))
    targets = inputs["targets"].values
    leaves = tuple(n for n in values if draw.chance(0.7))
    # (Small logits are all alike, so are their gradients, and what rounds these.)
    unrelated = all(r in GENERIC and r != "small" for r in regimes)
    generic = unrelated and not any(0 in inputs[n].view.stride() for n in values)
    dloss = losses.incoming_gradient(draw, options, targets == options.ignore_index, dtype)

    def call(tensors: Tensors) -> Tensors:
        return {"loss": thunderkittens.linear_cross_entropy(**tensors, **options.keywords())}

    def judge(results: Tensors) -> dict[str, Judged]:
        reference = Products(options, values, targets, draw.kernels, generic)
        judged = {"loss": reference.loss()}
        if leaves:
            judged |= reference.gradients(dloss.values)
        return {name: judged[name] for name in results}

    title = describe(
        dtype=dtype_name(dtype),
        x=[*rows, width],
        vocabulary=vocabulary,
        bias="bias" in values,
        regimes="/".join(regimes),
        leaves=",".join(leaves),
        **options.keywords(),
    )
    return Case(title, inputs, call, judge, leaves, {"loss": dloss} if leaves else {})


class Products:
    """The logits of a call, and what follows from them."""

    def __init__(
        self,
        options: losses.Options,
        values: Tensors,
        targets: Tensor,
        kernels: bool,
        generic: bool,
    ) -> None:
        self.values, self.generic = values, generic
        self.dtype = values["x"].dtype
        self.arithmetic = a = Arithmetic.of(self.dtype)
        self.unit = torch.finfo(self.dtype).eps / 2
        width = values["x"].shape[-1]
        self.x = values["x"].double().reshape(-1, width)
        self.weight = values["weight"].double()
        logits = self.x @ self.weight.t()
        sizes = self.x.abs() @ self.weight.abs().t()
        if "bias" in values:
            logits, sizes = logits + values["bias"].double(), sizes + values["bias"].double().abs()
        # With a bias, torch may round twice: the product, and the sum.
        roundings = 2 if "bias" in values else 1
        info = torch.finfo(self.dtype)
        step = info.smallest_normal * info.eps
        self.slack = a.sum(width, generic) * sizes + roundings * self.unit * logits.abs() + step
        shape = (*targets.shape, len(self.weight))
        kernel = kernels and self.dtype != FP64
        # (A logit that rounds to infinity makes no sense of all that follows.)
        self.fits = bool((sizes < info.max / 2).all())
        slack = self.slack.view(shape)
        self.rows = losses.Rows(
            options, logits.view(shape), targets, kernel, self.dtype, slack, generic
        )

    def loss(self) -> Judged:
        """The loss, which may be anything where a logit is none."""
        judged = self.rows.loss()
        return judged if self.fits else Judged(judged.want, torch.full_like(judged.want, math.inf))

    def gradients(self, dloss: Tensor) -> dict[str, Judged]:
        """Of x, weight and bias: sums of the logits' gradient times the others."""
        a = self.arithmetic
        want, error = (t.reshape(-1, len(self.weight)) for t in self.rows.gradient_of_logits())
        factor = self.rows.factor(dloss).reshape(-1, 1)
        counts = self.rows.factor(torch.ones_like(dloss)).reshape(-1, 1)
        self.later = abs(float(dloss)) if dloss.dim() == 0 else 0.0
        d, exact = want * factor, (error - self._slack_of(want)).clamp(min=0.0) * factor.abs()
        info = torch.finfo(self.dtype)
        step = info.smallest_normal * info.eps * (1 + (factor / counts).nan_to_num(1.0).abs())
        # Errors of each element by itself: what its logit is off, and its own rounding.
        single = self._slack_of(want) * factor.abs() + self.unit * d.abs()
        results = {}
        for name, left, right in (
            ("x", (d, exact, single, step), self.weight),
            ("weight", tuple(t.expand_as(d).t() for t in (d, exact, single, step)), self.x),
        ):
            each, common, own, lost = (t.expand_as(left[0]) for t in left)
            size = right.abs()
            length = each.shape[1]
            bound = (common + a.sum(length, self.generic) * each.abs() + lost) @ size
            if self.generic:
                bound = bound + torch.minimum(own @ size, 3 * (own.square() @ size.square()).sqrt())
            else:
                bound = bound + own @ size
            results[name] = self._judged(each @ right, bound, name)
        if "bias" in self.values:
            bound = exact.sum(0) + a.sum(len(d), self.generic) * d.abs().sum(0) + step.sum()
            bound = bound + walk(1.0, single, 0, self.generic)
            results["bias"] = self._judged(d.sum(0), bound, "bias")
        unknown = error.isinf().any()
        return {
            f"d{name}": Judged(each.want, torch.where(unknown, math.inf, each.bound))
            for name, each in results.items()
        }

    def _slack_of(self, want: Tensor) -> Tensor:
        """How far an element of the gradient is off for the error of its own logit: p · slack."""
        p = self.rows.p.reshape(want.shape).masked_fill(self.rows.ignored.reshape(-1, 1), 0.0)
        weight = 1 + 2 * self.rows.options.z_loss * self.rows.lse.reshape(-1, 1).abs()
        return p * weight * self.slack.expm1()

    def _judged(self, want: Tensor, bound: Tensor, name: str) -> Judged:
        info = torch.finfo(self.dtype)
        # Rounded by the forward, and again where the backward multiplies it by no power of two.
        step = info.smallest_normal * info.eps * (1 + self.later)
        roundings = 1 if self.later == 0 or math.frexp(self.later)[0] == 0.5 else 2
        bound = bound + roundings * self.unit * (want.abs() + bound) + step
        shape = self.values[name].shape
        bound = bound if self.fits else torch.full_like(bound, math.inf)
        return Judged(want.reshape(shape), bound.reshape(shape))
