"""linear, quantized_linear: sums of K products in float32, rounded once; by torch at each step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import thunderkittens
from tests.families.linear.quantized_cases import E4M3, NAN_CODE, weight_and_error
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import DTYPES, FP64, Draw

OPS = ("linear", "quantized_linear")
# Sums of these overflow, or are below what is normal.
LEFT_OUT = ("edge", "huge", "tiny", "denormal")


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    gated = draw.chance(0.4)
    rows = draw.leading(draw.choice((8, 16, 32, 80)))
    drawn: Tensors = {}
    regime = draw.regime(without=LEFT_OUT)
    if op == "linear":
        width = draw.choice((8 * draw.size(64), draw.size(200)))
        both = columns_of(draw, width, gated)
        other = draw.regime(without=LEFT_OUT)
        drawn["weight"] = (draw.values((both, width), dtype, other) * width**-0.5).to(dtype)
    else:
        other, weight = quantized(draw, dtype, gated)
        width = 2 * weight["weight"].shape[1] if other == "int4" else weight["weight"].shape[1]
        both = weight["weight"].shape[0]
        drawn |= weight
    columns = both // 2 if gated else both
    drawn["x"] = draw.values((*rows, width), dtype, regime)
    if draw.chance(0.4):
        drawn["bias"] = draw.values((both,), dtype, "normal")
    if draw.chance(0.4):
        drawn["residual"] = draw.values((*rows, columns), dtype, "normal")
    eps = draw.choice((0.0, 1e-6, 1.0)) if draw.chance(0.3) else None
    if eps is not None:
        drawn["norm_weight"] = draw.values((width,), dtype, "normal")
    inputs = {name: draw.place(t, rows=name == "weight") for name, t in drawn.items()}
    activation = "swiglu" if gated else None
    constant = draw.chance(0.4)

    def call(tensors: Tensors) -> Tensors:
        given = dict(tensors)
        norm = None if eps is None else (given.pop("norm_weight"), eps)
        if other == "e4m3":
            given["weight"] = given["weight"].view(E4M3)
        # A kernel between: the one in front of the call does not write the weight.
        given["x"].new_zeros(1)
        function = getattr(thunderkittens, op)
        return {
            "y": function(**given, activation=activation, norm=norm, weight_is_constant=constant)
        }

    def judge(results: Tensors) -> dict[str, Judged]:
        given = {name: p.values for name, p in inputs.items()}
        of_weight = None
        if op == "quantized_linear":
            weight = given["weight"].view(E4M3) if other == "e4m3" else given["weight"]
            made = (weight, given.pop("scale"), given.pop("zero", None))
            given["weight"], of_weight = weight_and_error(*made, dtype)
        return {"y": reference(given, gated, eps, of_weight)}

    title = describe(
        dtype=dtype_name(dtype),
        x=[*rows, width],
        columns=columns,
        activation=activation,
        eps=eps,
        constant=constant,
        given=",".join(drawn),
        regimes=f"{regime}/{other}",
    )
    return Case(title, inputs, call, judge, (), {})


def columns_of(draw: Draw, width: int, gated: bool) -> int:
    """Rows of the weight."""
    columns = draw.size(max(1, min(600, draw.elements() // width)))
    return columns * (2 if gated else 1)


def quantized(draw: Draw, dtype: torch.dtype, gated: bool) -> tuple[str, Tensors]:
    """A weight of e4m3, as bytes, or of int4, and what it is made of."""
    if draw.chance(0.5):
        width = draw.choice((16 * draw.size(32), draw.size(200)))
        shape = (columns_of(draw, width, gated), width)
        codes = draw.integers(shape, 0, 255).to(torch.uint8)
        codes = torch.where(codes % 128 == NAN_CODE, 0, codes)
        scale = draw.uniform(shape[:1]).float() / 100 * width**-0.5
        return "e4m3", {"weight": codes, "scale": scale}
    group = draw.choice((32, 32, 64, 96, 128, 8, 24))
    groups = draw.size(max(1, 512 // group))
    rows = columns_of(draw, group * groups, gated)
    weight = {
        "weight": draw.integers((rows, group * groups // 2), 0, 255).to(torch.uint8),
        "scale": (draw.uniform((rows, groups)) / 7 * (group * groups) ** -0.5).to(dtype),
    }
    if draw.chance(0.5):
        weight["zero"] = draw.integers((rows, groups), 0, 15).to(torch.uint8)
    return "int4", weight


def reference(given: Tensors, gated: bool, eps: float | None, of_weight: Tensor | None) -> Judged:
    """y in float64, and how far a result may be from it.

    `of_weight`: how far the weight that is multiplied may be from the one given.
    """
    info = torch.finfo(given["x"].dtype)
    unit = 2.0**-52 if given["x"].dtype == FP64 else 2.0**-23
    x, weight = given["x"].double(), given["weight"].double()
    of_norm = 0.0
    if eps is not None:
        # A row that is 0 stays 0, or is NaN where eps is 0, too.
        root = (x.square().mean(-1, keepdim=True) + eps).sqrt()
        x = x * given["norm_weight"].double() / root
        of_norm = info.eps / 2 + (x.shape[-1] + 8) * unit
    y, size = x @ weight.T, x.abs() @ weight.abs().T
    # The reference of float64 is rounded as the result is.
    rounding = info.eps if given["x"].dtype == FP64 else info.eps / 2

    def rounded(value: Tensor, error: Tensor) -> Tensor:
        return error + rounding * (value.abs() + error) + info.smallest_normal * info.eps

    def rounded_between(value: Tensor, error: Tensor) -> Tensor:
        """Of a step that torch rounds: where it overflows, what follows may be NaN."""
        overflows = value.abs() + error >= info.max
        return torch.where(overflows, math.inf, rounded(value, error))

    # Any order of the sum: at most one rounding of each partial sum. Torch on a CPU rounds it
    # before it adds a bias, or begins the sum with the bias.
    of_sum = (x.shape[-1] + 2) * unit
    error = (of_sum + of_norm) * size
    if of_weight is not None:
        error = error + x.abs() @ of_weight.T
    if "bias" in given:
        bias = given["bias"].double()
        error = rounded_between(y, error) + (of_sum + unit) * bias.abs()
        y = y + bias
    if gated:
        (gate, up), (gate_error, up_error) = y.chunk(2, -1), rounded_between(y, error).chunk(2, -1)
        silu = gate * torch.sigmoid(gate)
        silu_error = rounded(silu, 1.1 * gate_error + 16 * unit * silu.abs())
        y = silu * up
        error = silu_error * (up.abs() + up_error) + silu.abs() * up_error
    if "residual" in given:
        error = rounded_between(y, error)
        y = y + given["residual"].double()
    return Judged(y, rounded(y, error).nan_to_num(math.inf, math.inf))
