"""linear_attention_step: a decayed state and a product in float32, and a sum over the keys."""

from __future__ import annotations

import torch
from torch import Tensor

import thunderkittens
from tests.fuzz.arithmetic import Arithmetic, Number
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import DTYPES, FP32, FP64, Draw

OPS = ("linear_attention_step",)


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    exact = FP64 if dtype == FP64 else FP32
    most = draw.elements()
    keys = draw.choice((16, 64, 128, 256, draw.size(256), draw.size(300)))
    values = draw.choice((16, 64, 128, draw.size(128), draw.size(300)))
    heads = draw.size(max(1, min(32, most // (keys * values))))
    key_heads = draw.choice([n for n in range(1, heads + 1) if heads % n == 0])
    batch = draw.size(max(1, min(64, most // (keys * values * heads))))
    indexed = draw.chance(0.6)
    states = batch + draw.choice((0, 1, 5)) if indexed else batch

    regime = draw.regime(without=("edge",))
    inputs = {
        name: draw.place(draw.values((batch, *shape), dtype, regime), expand=True)
        for name, shape in (
            ("q", (key_heads, keys)),
            ("k", (key_heads, keys)),
            ("v", (heads, values)),
        )
    }
    state = draw.values((states, heads, keys, values), exact, draw.regime(without=("edge",)))
    inputs["state"] = draw.place(state, rows=True)
    decays = draw.choice(("none", "head", "token"))
    if decays != "none":
        shape = (heads,) if decays == "head" else (batch, heads)
        strength = draw.choice((1e-3, 1.0, 10.0, 100.0))
        inputs["log_decay"] = draw.place((-strength * draw.uniform(shape)).to(exact), expand=True)
    if indexed:
        slots = draw.uniform((states,)).argsort()[:batch]
        outside = draw.integers((batch,), states, 2**31 - 1) * draw.choice((1, -1))
        slots = torch.where(draw.uniform((batch,)) < 0.3, outside, slots)
        inputs["state_indices"] = draw.place(slots.int() if draw.chance(0.5) else slots)
    options = {"scale": draw.choice((0.5, -2.0, 1.0))} if draw.chance(0.4) else {}

    def call(tensors: Tensors) -> Tensors:
        return {"o": thunderkittens.linear_attention_step(**tensors, **options)}

    def judge(results: Tensors) -> dict[str, Judged]:
        given = {n: p.values for n, p in inputs.items()}
        return judged(given, options.get("scale", keys**-0.5))

    title = describe(
        dtype=dtype_name(dtype),
        q=[batch, key_heads, keys],
        v=[batch, heads, values],
        states=states,
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        regime=regime,
        decays=decays,
        indexed=indexed,
        **options,
    )
    return Case(title, inputs, call, judge, (), {}, ("state",))


def judged(given: Tensors, scale: float) -> dict[str, Judged]:
    """o and the states, from what was given."""
    dtype, states = given["v"].dtype, given["state"].double()
    arithmetic, share = Arithmetic.of(dtype), given["v"].shape[1] // given["q"].shape[1]
    batch = given["v"].shape[0]
    slots = given.get("state_indices", torch.arange(batch, device=states.device)).long()
    there = (slots >= 0) & (slots < states.shape[0])
    old = states[slots.clamp(0, states.shape[0] - 1)]
    q, k = (given[n].double().repeat_interleave(share, 1)[..., None] for n in "qk")
    new = Number(arithmetic, old) * decay_of(given, arithmetic)
    new = new + Number(arithmetic, k) * given["v"].double()[:, :, None]
    o = ((new * q).sum(-2) * scale).rounded(dtype)
    padding = ~there[:, None, None]
    want, bound = states.clone(), torch.zeros_like(states)
    want[slots[there]], bound[slots[there]] = new.value[there], new.error[there]
    return {
        "o": Judged(o.value.masked_fill(padding, 0), o.error.masked_fill(padding, 0)),
        "state": Judged(want, bound),
    }


def decay_of(given: Tensors, arithmetic: Arithmetic) -> Number:
    """e^g, [B or 1, H, 1, 1]: 2^x within 2 units in the last place, of an x that was rounded."""
    if "log_decay" not in given:
        return Number(arithmetic, torch.ones(1, 1, 1, 1, dtype=FP64, device=given["v"].device))
    g: Tensor = given["log_decay"].double()
    g = (g if g.dim() == 2 else g[None])[..., None, None]
    value = g.exp()
    off = arithmetic.unit * (4 + 2 * g.abs()) * value + arithmetic.tiny
    return Number(arithmetic, value, off)
