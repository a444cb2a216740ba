"""mamba2_step: a decayed state and a product in float32, and a sum over the columns."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import thunderkittens
from tests.fuzz.arithmetic import Arithmetic, Number
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import DTYPES, FP32, FP64, Draw

OPS = ("mamba2_step",)
# Products of three of the others leave the range in one order of them, and in another do not.
LEFT_OUT = ("edge", "huge", "tiny", "denormal")


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    exact = FP64 if dtype == FP64 else FP32
    most = draw.elements()
    width = draw.choice((16, 64, 128, draw.size(128), draw.size(300)))
    columns = draw.choice((16, 64, 128, 256, draw.size(256), draw.size(300)))
    heads = draw.size(max(1, min(32, most // (width * columns))))
    groups = draw.choice([n for n in range(1, heads + 1) if heads % n == 0])
    batch = draw.size(max(1, min(64, most // (width * columns * heads))))
    indexed = draw.chance(0.6)
    states = batch + draw.choice((0, 1, 5)) if indexed else batch

    regime = draw.regime(without=LEFT_OUT)
    softplus = draw.chance(0.6)
    dt = draw.normal((batch, heads)) + draw.choice((-9.0, -2.0, 2.0, 25.0))
    if not softplus:
        dt = draw.uniform((batch, heads)) * draw.choice((0.01, 1.0, 30.0))
    a = -draw.choice((1e-3, 1.0, 10.0)) * draw.uniform((heads,))
    drawn = {
        "x": draw.values((batch, heads, width), dtype, regime),
        "dt": dt.to(draw.choice((dtype, exact))),
        "A": a.to(exact),
        "B": draw.values((batch, groups, columns), dtype, regime),
        "C": draw.values((batch, groups, columns), dtype, regime),
    }
    if draw.chance(0.5):
        drawn["D"] = draw.values((heads,), draw.choice((dtype, exact)), "normal")
    if draw.chance(0.4):
        drawn["z"] = draw.values((batch, heads, width), dtype, draw.regime(without=LEFT_OUT))
    if draw.chance(0.5):
        drawn["dt_bias"] = draw.uniform((heads,)).to(draw.choice((dtype, exact)))
    inputs = {name: draw.place(values, expand=True) for name, values in drawn.items()}
    state = draw.values((states, heads, width, columns), exact, draw.regime(without=LEFT_OUT))
    inputs["state"] = draw.place(state, rows=True)
    if indexed:
        slots = draw.uniform((states,)).argsort()[:batch]
        outside = draw.integers((batch,), states, 2**31 - 1) * draw.choice((1, -1))
        slots = torch.where(draw.uniform((batch,)) < 0.3, outside, slots)
        inputs["state_indices"] = draw.place(slots.int() if draw.chance(0.5) else slots)

    def call(tensors: Tensors) -> Tensors:
        return {"y": thunderkittens.mamba2_step(**tensors, dt_softplus=softplus)}

    def judge(results: Tensors) -> dict[str, Judged]:
        return judged({name: p.values for name, p in inputs.items()}, softplus)

    title = describe(
        dtype=dtype_name(dtype),
        x=[batch, heads, width],
        B=[batch, groups, columns],
        states=states,
        given={name: dtype_name(values.dtype) for name, values in drawn.items()},
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        regime=regime,
        softplus=softplus,
        indexed=indexed,
    )
    return Case(title, inputs, call, judge, (), {}, ("state",))


def judged(given: Tensors, softplus: bool) -> dict[str, Judged]:
    """y and the states, from what was given."""
    dtype, states = given["x"].dtype, given["state"].double()
    arithmetic, batch = Arithmetic.of(dtype), given["x"].shape[0]
    share = given["x"].shape[1] // given["B"].shape[1]
    slots = given.get("state_indices", torch.arange(batch, device=states.device)).long()
    there = (slots >= 0) & (slots < states.shape[0])
    old = states[slots.clamp(0, states.shape[0] - 1)]
    x = given["x"].double()
    b, c = (given[n].double().repeat_interleave(share, 1)[:, :, None] for n in "BC")
    step = step_of(given, arithmetic, softplus)
    decay = exponential(step * given["A"].double()[:, None, None])
    new = decay * old + step * x[..., None] * b
    y = (new * c).sum(-1)
    if "D" in given:
        y = y + Number(arithmetic, x) * given["D"].double()[:, None]
    if "z" in given:
        y = y * gate(given["z"].double(), arithmetic)
    y, padding = y.rounded(dtype), ~there[:, None, None]
    want, bound = states.clone(), torch.zeros_like(states)
    want[slots[there]], bound[slots[there]] = new.value[there], new.error[there]
    return {
        "y": Judged(y.value.masked_fill(padding, 0), y.error.masked_fill(padding, 0)),
        "state": Judged(want, bound),
    }


def step_of(given: Tensors, arithmetic: Arithmetic, softplus: bool) -> Number:
    """dt', [B, H, 1, 1]: log(1 + e^x) of an x that was rounded, within some units of the last."""
    x = Number(arithmetic, given["dt"].double()[..., None, None])
    if "dt_bias" in given:
        x = x + given["dt_bias"].double()[:, None, None]
    if not softplus:
        return x
    value = F.softplus(x.value)
    off = x.error * torch.sigmoid(x.value + x.error)
    off = off + arithmetic.unit * (8 + 2 * x.value.abs()) * value + arithmetic.tiny
    if arithmetic.unit > 1e-9:  # x itself above 20, or a rounding below
        return Number(arithmetic, value, off)
    return Number(arithmetic, value, off + 2.1e-9 * ((x.value - 20).abs() <= x.error))


def exponential(x: Number) -> Number:
    """2^y within 2 units in the last place, of a y that was rounded."""
    value, arithmetic = x.value.exp(), x.arithmetic
    off = x.error.expm1() + arithmetic.unit * (4 + 2 * x.value.abs())
    return Number(arithmetic, value, off * value + arithmetic.tiny)


def gate(z: torch.Tensor, arithmetic: Arithmetic) -> Number:
    """silu(z): z by a reciprocal of 1 + e^−z, which may overflow where it is next to nothing."""
    value = F.silu(z)
    off = arithmetic.unit * (8 + 2 * z.abs().clamp(max=100)) * value.abs()
    return Number(arithmetic, value, off + arithmetic.tiny * (1 + z.abs()))
