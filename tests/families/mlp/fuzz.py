"""mlp: products summed in float32, and what is rounded between them: hidden, gelu of it, dhidden.

gelu's slope is at most 1.129 in size, its second derivative at most 0.798 (both forms to three
digits); a kernel computes either to 2⁻¹⁴ for 16 bits.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor
from torch.nn import functional

import thunderkittens
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import DTYPES, FP64, Draw

OPS = ("mlp",)
# Sums of these overflow, or are below what is normal.
LEFT_OUT = ("edge", "huge", "tiny", "denormal")
STEEPEST, MOST_BENT = 1.13, 0.8
# Of unrelated numbers: their roundings are independent (tests/fuzz/arithmetic.py: walk).
GENERIC = ("normal", "small")
WEIGHTS = ("fc1_weight", "fc2_weight")


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    rows = draw.leading(draw.choice((8, 80, 300) if not draw.large else (300, 1100, 2100)))
    inputs, hidden, outputs = (
        8 * draw.size(20) if draw.chance(0.8) else draw.size(100) for _ in range(3)
    )
    # Errors of what is alike add up, so that less is noticed: most are of unrelated numbers.
    plain = draw.chance(0.85)
    regimes = ["normal" if plain else draw.regime(without=LEFT_OUT) for _ in range(3)]
    regimes.append("normal" if plain else draw.choice(("normal", "constant")))
    drawn = {"x": draw.values((*rows, inputs), dtype, regimes[0])}
    for layer, out, into, regime in (
        ("fc1", hidden, inputs, regimes[1]),
        ("fc2", outputs, hidden, regimes[2]),
    ):
        weight = draw.values((out, into), dtype, regime)
        drawn[f"{layer}_weight"] = (weight * into**-0.5).to(dtype)
        if draw.chance(0.7):
            drawn[f"{layer}_bias"] = draw.values((out,), dtype, "normal")
    transposed = {name: draw.chance(0.5) for name in WEIGHTS}
    placed = {
        name: draw.place(t.t() if transposed.get(name) else t, expand=name == "x", rows=True)
        for name, t in drawn.items()
    }
    approximate = draw.choice(("none", "tanh"))
    leaves = tuple(placed) if draw.chance(0.6) else ("x",) if draw.chance(0.5) else ()
    dy = draw.place(draw.values((*rows, outputs), dtype, regimes[3]))
    generic = all(r in GENERIC for r in regimes) and 0 not in placed["x"].view.stride()

    def call(tensors: Tensors) -> Tensors:
        given = {name: t.t() if transposed.get(name) else t for name, t in tensors.items()}
        given = {"fc1_bias": None, "fc2_bias": None} | given
        return {"y": thunderkittens.mlp(**given, approximate=approximate)}

    def judge(results: Tensors) -> dict[str, Judged]:
        given = {name: p.values for name, p in placed.items()}
        upright = {name: t.t() if transposed.get(name) else t for name, t in given.items()}
        judged = references(upright, dy.values, approximate, generic)
        for name in WEIGHTS:
            if transposed[name] and f"d{name}" in results:
                found = judged[f"d{name}"]
                judged[f"d{name}"] = Judged(found.want.t(), found.bound.t())
        return {name: judged[name] for name in results}

    title = describe(
        dtype=dtype_name(dtype),
        x=[*rows, inputs],
        hidden=hidden,
        outputs=outputs,
        given=",".join(drawn),
        transposed=",".join(name for name in WEIGHTS if transposed[name]),
        approximate=approximate,
        regimes="/".join(regimes),
        leaves=leaves,
    )
    return Case(title, placed, call, judge, leaves, {"y": dy} if leaves else {})


@dataclasses.dataclass
class _Known:
    """A value in float64, and how far what was computed of it may be off.

    Attributes:
        value: The value.
        bound: The largest error.
        spread: The root of the sum of squares of the largest roundings in it, to first order: what
            a sum of many such adds up, if they are independent.
    """

    value: Tensor
    bound: Tensor
    spread: Tensor

    @property
    def T(self) -> _Known:
        return _Known(self.value.T, self.bound.T, self.spread.T)


def exact(value: Tensor) -> _Known:
    return _Known(value, torch.zeros_like(value), torch.zeros_like(value))


def rounded(value: Tensor, error: Tensor, spread: Tensor, dtype: torch.dtype) -> _Known:
    """What was known to `error` and `spread`, in `dtype`."""
    info = torch.finfo(dtype)
    # The reference of float64 is rounded as the result is.
    relative = info.eps if dtype == FP64 else info.eps / 2
    step = info.smallest_normal * info.eps  # between numbers near zero
    bound = error + relative * (value.abs() + error) + step
    # Where it overflows, what follows may be NaN.
    overflows = value.abs() + error >= info.max
    spread = torch.hypot(spread, (relative * value.abs()).clamp(min=step / 2))
    return _Known(value, torch.where(overflows, math.inf, bound), spread)


class _Layers:
    """The formulas of a call, with errors.

    Attributes:
        dtype: Of all tensors.
        generic: Whether they are unrelated numbers.
        unit: Of what products are added in.
        of_gelu: The relative error of gelu and of its slope.
    """

    def __init__(self, dtype: torch.dtype, generic: bool) -> None:
        self.dtype, self.generic = dtype, generic
        self.unit = 2.0**-52 if dtype == FP64 else 2.0**-23
        self.of_gelu = {2: 2.0**-14, 4: 2.0**-18, 8: 2.0**-45}[dtype.itemsize]

    def carried(self, a: _Known, other: Tensor) -> Tensor:
        """What a's errors [m, k] make of a product with `other`, [n, k]."""
        worst = a.bound @ other.abs().T
        if not self.generic:
            return worst
        return torch.minimum(worst, 3.0 * self.spread(a, other))

    @staticmethod
    def spread(a: _Known, other: Tensor) -> Tensor:
        """The same of their roundings alone."""
        return (a.spread.square() @ other.square().T).sqrt()

    def product(self, a: _Known, b: _Known, bias: Tensor | None = None) -> _Known:
        """a bᵀ + bias."""
        terms = a.value.shape[-1]
        value = a.value @ b.value.T
        of_sum = (terms + 2) * self.unit * (a.value.abs() @ b.value.abs().T)
        error = of_sum + self.carried(a, b.value) + self.carried(b, a.value).T
        spread = torch.hypot(self.spread(a, b.value), self.spread(b, a.value).T)
        spread = torch.hypot(spread, of_sum)
        if bias is not None:  # torch on a CPU rounds the product before, or begins with the bias
            found = rounded(value, error, spread, self.dtype)
            error = found.bound + (terms + 3) * self.unit * bias.abs()
            value, spread = value + bias, found.spread
        return rounded(value, error.nan_to_num(math.inf, math.inf), spread, self.dtype)

    def activated(self, hidden: _Known, approximate: str) -> tuple[_Known, Tensor]:
        """gelu of it, and its slope."""
        leaf = hidden.value.detach().requires_grad_()
        active = functional.gelu(leaf, approximate=approximate)
        (slope,) = torch.autograd.grad(active.sum(), leaf)
        active = active.detach()
        # torch adds 1 to a tanh, or to erf, which may be near −1.
        of_gelu = self.of_gelu * active.abs() + 4 * self.unit * hidden.value.abs()
        error = STEEPEST * hidden.bound + of_gelu
        spread = torch.hypot(slope * hidden.spread, of_gelu)
        return rounded(active, error, spread, self.dtype), slope

    def through_gelu(self, back: _Known, hidden: _Known, slope: Tensor) -> _Known:
        """back · slope; torch has rounded `back`, a kernel has not."""
        of_slope = MOST_BENT * hidden.bound + STEEPEST * self.of_gelu
        error = STEEPEST * back.bound + (back.value.abs() + back.bound) * of_slope
        of_slope = torch.hypot(MOST_BENT * hidden.spread, of_slope.new_tensor(self.of_gelu))
        spread = torch.hypot(slope * back.spread, back.value * of_slope)
        return rounded(back.value * slope, error, spread, self.dtype)

    def sums(self, of: _Known) -> _Known:
        """Of its columns."""
        ones = torch.ones_like(of.value[:, :1]).T
        error = (len(of.value) + 2) * self.unit * of.value.abs().sum(0)
        error = error + self.carried(of.T, ones).squeeze(-1)
        return rounded(of.value.sum(0), error, self.spread(of.T, ones).squeeze(-1), self.dtype)


def references(given: Tensors, dy: Tensor, approximate: str, generic: bool) -> dict[str, Judged]:
    wide = {name: t.double() for name, t in given.items()}
    x, d = exact(wide["x"].flatten(0, -2)), exact(dy.double().flatten(0, -2))
    w1, w2 = (exact(wide[name]) for name in WEIGHTS)
    layers = _Layers(dy.dtype, generic)
    hidden = layers.product(x, w1, wide.get("fc1_bias"))
    activated, slope = layers.activated(hidden, approximate)
    dhidden = layers.through_gelu(layers.product(d, w2.T), hidden, slope)
    found = {
        "y": layers.product(activated, w2, wide.get("fc2_bias")),
        "dx": layers.product(dhidden, w1.T),
        "dfc1_weight": layers.product(dhidden.T, x.T),
        "dfc1_bias": layers.sums(dhidden),
        "dfc2_weight": layers.product(d.T, activated.T),
        "dfc2_bias": layers.sums(d),
    }
    shapes = {"y": dy.shape, "dx": given["x"].shape}
    return {
        name: Judged(
            r.value.reshape(shapes.get(name, r.value.shape)),
            r.bound.nan_to_num(math.inf, math.inf).reshape(shapes.get(name, r.value.shape)),
        )
        for name, r in found.items()
    }
