"""based_attention_step: features and products in float32, and a quotient of two sums."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import thunderkittens
from tests.fuzz.arithmetic import Arithmetic, Number
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import DTYPES, FP32, FP64, Draw

OPS = ("based_attention_step",)
REGIMES = ("normal", "positive", "small", "sparse", "constant", "constant rows")


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    exact = FP64 if dtype == FP64 else FP32
    keys = draw.choice((8, 16, 16, draw.integer(1, 16), 20))
    values = draw.choice((8, 64, 128, draw.size(16), draw.size(128), draw.size(300)))
    count = 1 + keys + keys * (keys + 1) // 2
    most = max(1, draw.elements() // (count * values))
    heads = draw.size(min(16, most))
    batch = draw.size(max(1, min(64, most // heads)))
    rows, regime = (batch, heads), draw.choice(REGIMES)
    inputs = {
        name: draw.place(draw.values((*rows, width), dtype, regime), expand=True)
        for name, width in (("q", keys), ("k", keys), ("v", values))
    }
    normalize = draw.chance(0.7)
    options = {"normalize": normalize, "eps": draw.choice((1e-12, 0.5))}
    scale = draw.choice((None, 1.0, 0.3))
    # Of some tokens, so that the sums are some that can be.
    before = thunderkittens.based_features(draw.normal((*rows, 5, keys)), scale=scale)
    state = before.mT @ draw.normal((*rows, 5, values))
    inputs["state"] = draw.place(state.to(exact), rows=True)
    if normalize:
        inputs["sums"] = draw.place(before.sum(2).to(exact), rows=True)

    def call(tensors: Tensors) -> Tensors:
        state = (tensors["state"], tensors["sums"]) if normalize else tensors["state"]
        of_token = (tensors[name] for name in "qkv")
        step = thunderkittens.based_attention_step
        return {"o": step(*of_token, state, scale=scale, **options)}

    def judge(results: Tensors) -> dict[str, Judged]:
        given = {name: p.values for name, p in inputs.items()}
        return judged(given, keys**-0.5 if scale is None else scale, options["eps"])

    title = describe(
        dtype=dtype_name(dtype),
        q=[batch, heads, keys],
        v=[batch, heads, values],
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        regime=regime,
        scale=scale,
        **options,
    )
    return Case(title, inputs, call, judge, (), {}, ("state", "sums")[: 1 + normalize])


def judged(given: Tensors, scale: float, eps: float) -> dict[str, Judged]:
    """o and the state, from what was given."""
    dtype = given["v"].dtype
    arithmetic = Arithmetic.of(dtype)
    of_q, of_k = (features(given[name].double(), scale, arithmetic) for name in "qk")
    column = Number(arithmetic, of_k.value[..., None], of_k.error[..., None])
    state = column * given["v"].double()[..., None, :] + given["state"].double()
    row = Number(arithmetic, of_q.value[..., None], of_q.error[..., None])
    o = (state * row).sum(-2)
    found = {"state": Judged(state.value, state.error)}
    if "sums" in given:
        sums = of_k + given["sums"].double()
        weight = (sums * of_q).sum(-1) + eps
        o = o / Number(arithmetic, weight.value[..., None], weight.error[..., None])
        found["sums"] = Judged(sums.value, sums.error)
    o = o.rounded(dtype)
    return {"o": Judged(o.value, o.error), **found}


def features(x: Tensor, scale: float, arithmetic: Arithmetic) -> Number:
    """1, √scale · x(e), and for e ≤ f scale · x(e) x(f), which is 1/√2 of that where e = f."""
    width = x.shape[-1]

    def weighted(terms: Number | Tensor, weights: Tensor) -> Number:
        # The weights are rounded themselves, once or twice: the usual scale, 1 / √D, is not the
        # same number where it is one power, and the root of it is a rounding more.
        return Number(arithmetic, weights, 2 * arithmetic.unit * weights) * terms

    of_one = torch.full((width,), scale**0.5, dtype=torch.float64, device=x.device)
    parts = [Number(arithmetic, torch.ones_like(x[..., :1])), weighted(x, of_one)]
    for e in range(width):
        of_two = torch.full((width - e,), scale, dtype=torch.float64, device=x.device)
        of_two[0] *= math.sqrt(0.5)
        parts.append(weighted(Number(arithmetic, x[..., e : e + 1]) * x[..., e:], of_two))
    return Number(
        arithmetic,
        torch.cat([part.value for part in parts], -1),
        torch.cat([part.error.expand_as(part.value) for part in parts], -1),
    )
