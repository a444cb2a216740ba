"""swiglu, geglu and gelu.

The docstrings bound the kernels' errors: (eps / 2 + 2⁻¹⁴) · |y| for 16 bits, for float32
2⁻²⁰ · |y|, there times 1 + L / 4 for gelu, L = ln(x / y), since an exponent is off by roundings of
itself. Where σ or Φ is below 2⁻¹²⁶, it may be 0. The slopes are sums of two products of the same
factors. What torch computes takes 1 + tanh, 1 + erf and 1 − σ, which cancel: there a factor is off
by some roundings of 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

import thunderkittens
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import DTYPES, FP64, Draw

OPS = ("swiglu", "geglu", "gelu")
LEAST = 2.0**-126  # of σ and Φ that have to be told from 0


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    elements = draw.elements()
    width = draw.size(min(elements, 1 << 16))
    shape = (*draw.leading(elements // width), width)
    if draw.chance(0.02):
        shape = draw.choice(((0,), (3, 0), (0, 8), (), (1,)))
    names = ("x",) if op == "gelu" else ("gate", "up")
    regimes = [draw.regime(without=() if shape and 0 not in shape else ("one-hot",)) for _ in names]
    values = [draw.values(shape, dtype, regime) for regime in regimes]
    for each in values:
        if draw.chance(0.1) and each.numel():
            at = draw.integer(0, each.numel() - 1)
            each.view(-1)[at] = draw.choice((math.nan, math.inf, -math.inf))
    halves = op != "gelu" and draw.chance(0.15) and len(shape) > 0  # of one projection
    if halves:
        inputs = {"both": draw.place(torch.cat(values, -1))}
    else:
        inputs = {n: draw.place(v, expand=True) for n, v in zip(names, values, strict=True)}
        values = [p.values for p in inputs.values()]
    approximate = draw.choice(("tanh", "none"))
    leaves = tuple(n for n in inputs if draw.chance(0.7))
    dy = draw.place(
        draw.values(shape, dtype, draw.choice(("normal", "constant", "sparse"))), expand=True
    )

    def call(tensors: Tensors) -> Tensors:
        given = tensors["both"].chunk(2, -1) if halves else tensors.values()
        options = {} if op == "swiglu" else {"approximate": approximate}
        return {"y": getattr(thunderkittens, op)(*given, **options)}

    def judge(results: Tensors) -> dict[str, Judged]:
        function = "silu" if op == "swiglu" else approximate
        kernel = draw.kernels and dtype != FP64
        judged = references(function, values, dy.values, kernel)
        if halves and leaves:
            dgate, dup = judged["dgate"], judged["dup"]
            both = [
                torch.cat(pair, -1) for pair in ((dgate.want, dup.want), (dgate.bound, dup.bound))
            ]
            judged["dboth"] = Judged(*both)
        return {name: judged[name] for name in results}

    title = describe(
        dtype=dtype_name(dtype),
        shape=list(shape),
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        regimes="/".join(regimes),
        approximate=None if op == "swiglu" else approximate,
        leaves=leaves,
    )
    return Case(title, inputs, call, judge, leaves, {"y": dy} if leaves else {})


def references(function: str, values: list[Tensor], dy: Tensor, kernel: bool) -> dict[str, Judged]:
    """y and all gradients of gate · up, or of x alone, whose `up` is 1."""
    x, dtype = values[0].double(), values[0].dtype
    up = values[1].double() if len(values) == 2 else torch.ones_like(x)
    d, info = dy.double(), torch.finfo(dtype)
    (f, f_error), (slope, slope_error) = factors(function, x, dtype, kernel)
    inner = torch.finfo(torch.float64 if dtype == FP64 else torch.float32)
    # Products, whose own roundings are two units at most; and each may lose a subnormal's step.
    step = 4 * inner.smallest_normal * inner.eps

    def product(value: Tensor, error: Tensor, factor: Tensor) -> Judged:
        want = value * factor
        bound = (error + 2 * inner.eps * value.abs()) * factor.abs() + step * (1 + factor.abs())
        bound = bound + info.eps / 2 * (want.abs() + bound) + info.smallest_normal * info.eps
        return Judged(want, bound.nan_to_num(math.inf, math.inf))

    y = product(f, f_error, up)
    special = ~(x.isfinite() & up.isfinite())  # infinities and NaN, which have no error
    vanishes = up.isinf() & (f.abs() <= f_error)  # 0 · ∞
    exact = torch.where(vanishes, math.inf, 0.0)
    y = Judged(y.want, torch.where(special & kernel, exact, y.bound))
    factor = d * up
    dx = product(slope, slope_error, factor)
    # The product of the factors alone may overflow; and the slope at an infinity is not documented.
    free = (factor.abs() > inner.max / 2) | x.isinf() | up.isinf()
    dx = Judged(dx.want, torch.where(free, math.inf, dx.bound))
    dup = product(f, f_error, d)
    dup = Judged(dup.want, torch.where(x.isinf(), math.inf, dup.bound))
    return {"y": y, "dx": dx, "dgate": dx, "dup": dup}


def factors(
    function: str, x: Tensor, dtype: torch.dtype, kernel: bool
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The function and its slope, each with the largest error before it is rounded."""
    size, square = x.abs(), x.square().clamp(max=1e12)
    if function == "none":
        s = torch.special.erfc(-x * math.sqrt(0.5)) / 2
        density = torch.exp(-square / 2) / math.sqrt(2 * math.pi)
        exponent, bend, steep = square / 2, x * density, size  # steep: (ln s)' at most
    else:
        root = 2 * math.sqrt(2 / math.pi)
        z = x if function == "silu" else root * x * (1 + 0.044715 * square)
        dz = torch.ones_like(x) if function == "silu" else root * (1 + 3 * 0.044715 * square)
        s, rest = torch.sigmoid(z), torch.sigmoid(-z)
        exponent, bend, steep = z.abs(), x * s * rest * dz, dz
    bend = bend.nan_to_num(0.0)
    f, slope = x * s, s + bend
    f = torch.where(x == -math.inf, math.nan, f)
    unit = torch.finfo(torch.float64 if dtype == FP64 else torch.float32).eps / 2
    if kernel and torch.finfo(dtype).bits == 16:
        relative = torch.full_like(x, 2.0**-14)
    else:
        # In the tail of the slope both terms cancel as far as they please: bounded by their sizes.
        relative = 16 * unit * (1 + (0 if function == "silu" else exponent.clamp(max=200) / 4))
        relative = relative + torch.zeros_like(x)
    lost = LEAST * size
    lost_slope = LEAST * (1 + size * steep.clamp(max=1e4))
    if not kernel:
        lost = lost + 8 * unit * size
        lost_slope = lost_slope + 8 * unit * (1 + size) * (1 + size.clamp(max=10).square())
        # x³ and x² overflow in torch's formulas, next to a 0; an infinity has torch's own value.
        lost_slope = torch.where(size > 1e12, math.inf, lost_slope)
        lost = torch.where(x.isinf(), math.inf, lost)
    f_error = relative * f.abs() + lost
    return (f, f_error), (slope, relative * (s + bend.abs()) + lost_slope)
