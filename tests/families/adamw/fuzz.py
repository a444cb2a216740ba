"""adamw: a step of one parameter, of any shape, strides, dtypes and options.

The docstring bounds the error of p before it is rounded; that of m and v comes from the roundings
of their terms. What float32 does not hold, as the square of a huge gradient, is not judged.
"""

from __future__ import annotations

import math

import torch

import thunderkittens
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import BF16, DTYPES, FP32, FP64, Draw

OPS = ("adamw",)
UNIT, LEAST = 2.0**-24, 2.0**-120
REGIMES = ("normal", "positive", "small", "constant", "sparse", "offset", "tiny")
WRITTEN = ("param", "exp_avg", "exp_avg_sq")


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    moments = FP64 if dtype == FP64 else draw.choice((FP32, FP32, BF16))
    elements = draw.elements()
    width = draw.size(min(elements, 1 << 16))
    shape = (*draw.leading(elements // width), width)
    if draw.chance(0.05):
        shape = draw.choice(((0,), (3, 0), (), (1,)))
    regimes = [draw.choice(REGIMES) for _ in range(4)]
    step = draw.choice((1, 2, 10, 1000, 1_000_000))
    drawn = {
        "grad": draw.values(shape, dtype, regimes[0]),
        "param": draw.values(shape, dtype, regimes[1]),
        "exp_avg": draw.values(shape, moments, regimes[2]),
        "exp_avg_sq": draw.values(shape, FP64, regimes[3]).square().to(moments),
    }
    options = {
        "step": step,
        "lr": draw.choice((0.0, 1e-3, 0.1)),
        "beta1": draw.choice((0.0, 0.9, 0.99)),
        "beta2": draw.choice((0.0, 0.95, 0.999)),
        "eps": draw.choice((1e-8, 1e-3)),
        "weight_decay": draw.choice((0.0, 0.1)),
        "maximize": draw.chance(0.3),
    }
    norm = draw.choice((None, 0.1, 3.0, math.inf, math.nan))
    if norm is not None:
        drawn["grad_norm"] = torch.full((), norm, device=draw.device)
        options["skip_nonfinite"] = draw.chance(0.5)
        options["max_norm"] = draw.choice((None, 1.0, 0.5))
    if dtype != torch.float16 and draw.chance(0.3):
        options |= {"stochastic_rounding": True, "seed": draw.integer(0, 2**40)}
    inputs = {name: draw.place(t) for name, t in drawn.items()}

    def call(tensors: Tensors) -> Tensors:
        thunderkittens.adamw(**tensors, **options)
        return {}

    def judge(results: Tensors) -> dict[str, Judged]:
        return expected({name: p.values for name, p in inputs.items()}, options)

    title = describe(
        dtype=dtype_name(dtype),
        moments=dtype_name(moments),
        shape=list(shape),
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        regimes="/".join(regimes),
        norm=norm,
        **options,
    )
    return Case(title, inputs, call, judge, (), {}, WRITTEN)


def corrected(beta: float, t: int) -> float:
    """1 − β^t, without cancellation."""
    return -math.expm1(t * math.log(beta)) if beta else 1.0


def expected(given: Tensors, o: dict) -> dict[str, Judged]:
    """Parameter and moments after the step."""
    grad, p, m, v = (given[name].double() for name in ("grad", *WRITTEN))
    norm = float(given["grad_norm"]) if "grad_norm" in given else 0.0
    if o.get("skip_nonfinite") and not math.isfinite(norm):
        return {n: Judged(given[n].double(), torch.zeros_like(p)) for n in WRITTEN}
    factor = -1.0 if o["maximize"] else 1.0
    if o.get("max_norm") is not None:
        clip = o["max_norm"] / (norm + 1e-6)
        factor *= 1.0 if clip > 1 else clip
    g, t, beta1, beta2 = grad * factor, o["step"], o["beta1"], o["beta2"]
    unit = 2.0**-53 if given["param"].dtype == FP64 else UNIT
    size = m.abs() + (1 - beta1) * (g.abs() + m.abs())
    m = m + (1 - beta1) * (g - m)
    v = beta2 * v + (1 - beta2) * g.square()
    root = (v / corrected(beta2, t)).sqrt()
    scale = 1 / corrected(beta1, t) / (root + o["eps"])
    want = p - o["lr"] * (m * scale + o["weight_decay"] * p)
    # Below 2⁻¹²⁰ a square may be 0, and so its root.
    lost = torch.where(v < LEAST, 1.0, 0.0) * scale * root.clamp_min(2.0**-60)
    error = 32 * unit * size * scale * (1 + lost) + lost * m.abs() * scale
    error = o["lr"] * (error + 4 * unit * (o["weight_decay"] * p).abs())
    judged = {}
    values = ((want, error), (m, 8 * unit * size), (v, 16 * unit * v + 2 * LEAST))
    for name, (value, bound) in zip(WRITTEN, values, strict=True):
        info = torch.finfo(given[name].dtype)
        random = o.get("stochastic_rounding") and given[name].dtype == BF16
        rounding = info.eps * (1.0 if random else 0.5)
        if info.bits == 64:  # the reference is rounded, too
            rounding *= 6
        bound = bound + rounding * (value.abs() + bound) + info.smallest_normal * info.eps
        bound = torch.where(value.abs() > info.max / 2, math.inf, bound)
        judged[name] = Judged(value, bound.nan_to_num(math.inf))
    return judged
