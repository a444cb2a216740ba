"""mamba2: a recurrence by chunks, its sums bounded by those of absolute values."""

from __future__ import annotations

import dataclasses
import itertools
import math

import torch
from torch import Tensor

import thunderkittens
from tests.families.mamba2 import cases
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import DTYPES, FP32, FP64, Draw, split
from tests.fuzz.judge import brought_back, lost_to_underflow
from thunderkittens.testing import tolerance

OPS = ("mamba2",)
# A GPU's cases: of several chunks, packed, which the others are too short for; one whose y is above
# float16's range before its gate; and one whose y has a gradient there that is near zero.
LARGE = (6, 810000196, 7000359)
# Of which factors underflow, or decays have large exponents: cases that were wrong once.
AT_THE_ENDS = (14254, 14269, 14326, 14350, 14390)
# Sums of products of the others leave float16's range, of which the docstring speaks.
REGIMES = ("normal", "positive", "small", "sparse", "constant", "constant rows")
RESULTS = ("y", "final_state")
LIMITS = ((0.0, math.inf), (0.0, math.inf), (0.013, 0.21), (0.0, 0.37))


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    most = draw.elements()
    width, columns = (draw.choice((8, 16, 64, 128, 8 * draw.integer(1, 16), 7)) for _ in "PN")
    heads = draw.choice((1, 2, 4, 6))
    length = draw.size(min(2000, max(1, most // (heads * max(width, columns)))))
    packed = draw.chance(0.3)
    ends = tuple(itertools.accumulate((0, *split(draw, length)))) if packed else ()
    case = cases.Case(
        batch=1 if packed else draw.choice((1, 1, 2)),
        length=length,
        heads=heads,
        groups=draw.choice([n for n in (1, 2, 3, heads) if heads % n == 0]),
        head_width=width,
        state_width=columns,
        dtype=dtype,
        dt_dtype=draw.choice((dtype, FP64 if dtype == FP64 else FP32)),
        strength=draw.choice((1e-3, 0.5, 16.0)),
        steps=draw.choice((-9.0, -2.0, -2.0, 2.0, 25.0)),
        softplus=draw.chance(0.7),
        limit=draw.choice(LIMITS),
        bias=draw.chance(0.5),
        d=draw.choice((0, 1, 1, 2)),
        z=draw.chance(0.3),
        states=draw.chance(0.6),
        ends=ends,
    )
    inputs, incoming = drawn(draw, case)
    leaves = tuple(name for name in inputs if draw.chance(0.7)) if incoming else ()
    if not leaves:
        incoming = {}
    if packed:
        numbers = torch.tensor(ends, device=draw.device)
        inputs["cu_seqlens"] = draw.place(numbers.int() if draw.chance(0.5) else numbers)

    def call(tensors: Tensors) -> Tensors:
        results = thunderkittens.mamba2(
            **tensors,
            dt_softplus=case.softplus,
            dt_limit=case.limit,
            return_final_state=case.states,
        )
        results = results if case.states else (results,)
        return dict(zip(RESULTS, results, strict=False))

    def judge(results: Tensors) -> dict[str, Judged]:
        given = [inputs[n].values if n in inputs else None for n in cases.INPUTS]
        of_results = [incoming[n].values if n in incoming else None for n in RESULTS]
        if not incoming:  # gradients that nobody asks for
            of_results = [torch.zeros_like(results[n]) if n in results else None for n in RESULTS]
        judged = references(case, (*given, *of_results))
        return {name: each for name, each in judged.items() if name in results}

    title = describe(
        dtype=dtype_name(dtype),
        case=str(case),
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        leaves=leaves,
    )
    return Case(title, inputs, call, judge, leaves, incoming)


def drawn(draw: Draw, case: cases.Case):
    """The inputs, and the gradients of the results, or none."""
    exact = FP64 if case.dtype == FP64 else FP32
    tokens = (case.length,) if case.ends else (case.batch, case.length)
    regime = draw.choice(REGIMES)
    of_x = (*tokens, case.heads, case.head_width)
    of_b = (*tokens, case.groups, case.state_width)
    state = (case.sequences, case.heads, case.head_width, case.state_width)
    dt = draw.normal((*tokens, case.heads))
    bias = draw.normal((case.heads,))
    a = -case.strength * (1 + draw.uniform((case.heads,)))
    there = {
        "x": draw.values(of_x, case.dtype, regime),
        "dt": (dt + case.steps if case.softplus else 0.2 * dt).to(case.dt_dtype),
        "A": a.to(exact),
        "B": draw.values(of_b, case.dtype, regime),
        "C": draw.values(of_b, case.dtype, regime),
    }
    if case.d:
        shape = (case.heads, case.head_width)[: case.d]
        there["D"] = draw.values(shape, draw.choice((case.dtype, exact)), "normal")
    if case.z:
        there["z"] = draw.values(of_x, case.dtype, "normal")
    if case.bias:
        there["dt_bias"] = (0.5 * bias).to(draw.choice((case.dtype, exact)))
    if case.states:
        there["initial_state"] = draw.values(state, exact, "normal")
    incoming = {"y": draw.values(of_x, case.dtype, "normal")}
    if case.states:
        incoming["final_state"] = draw.values(state, exact, "normal")
    inputs, incoming = (
        {name: draw.place(values, expand=True) for name, values in some.items()}
        for some in (there, incoming)
    )
    return inputs, incoming if draw.chance(0.8) else {}


def references(case: cases.Case, inputs) -> dict[str, Judged]:
    """All results and gradients, and their bounds; `inputs` as `cases.make` gives them."""
    # Differences of long sums of decays, as in the other, are less exact than its bound.
    form = cases.recurrence if case.dtype == FP64 else cases.parallel
    lost, sizes = underflow(case, inputs), cases.sizes(case, inputs)
    between, sums = roundings_between(case, inputs, sizes), running_sums(case, inputs, sizes)
    for name, anything in beyond_the_range(case, inputs).items():
        between[name] = between[name] + anything
    return {
        name: Judged(want, bound + lost[name] + between[name] + sums.get(name, 0.0))
        for name, (want, bound) in cases.judged(case, inputs, form).items()
    }


def roundings_between(
    case: cases.Case, inputs, sizes: dict[str, Tensor]
) -> dict[str, Tensor | float]:
    """Of what goes from one part of mamba2 to another as a tensor of x's dtype.

    With z that is y, and the gradient that comes back for it, which near zero are off by half a
    step of the dtype, however small they are; with D of channels y before D x, dx in two parts,
    each rounded, and D's before it is a sum: each of its products, which near zero is off by half a
    step of the dtype that x and D make.
    """
    count = case.z + 2 * (case.d == 2)
    unit = torch.finfo(case.dtype).eps / 2
    between: dict[str, Tensor | float] = {n: count * unit * size for n, size in sizes.items()}
    if case.z:
        half, z, dy = tolerance.floor(case.dtype) / 2, inputs[6].double(), inputs[9].double()
        plain = dataclasses.replace(case, z=False)
        d_final = None if inputs[10] is None else torch.zeros_like(inputs[10])
        of_half = (*inputs[:6], None, *inputs[7:9], torch.full_like(dy, half), d_final)
        lost = cases.sizes(plain, of_half)
        lost |= {"y": half * z.abs(), "dz": 1.1 * half * dy.abs(), "final_state": 0.0}
        between = {name: off + lost[name] for name, off in between.items()}
    if case.d == 2:
        products = inputs[0].numel() // inputs[5].numel()
        step = tolerance.floor(torch.promote_types(case.dtype, inputs[5].dtype))
        between["dD"] = between["dD"] + products * step / 2
    return between


def beyond_the_range(case: cases.Case, inputs) -> dict[str, Tensor]:
    """Infinity where y before its gate or before D x, which x's dtype holds, may overflow there."""
    if not case.z and case.d < 2:
        return {}
    plain = dataclasses.replace(case, z=False)
    size = cases.sizes(plain, (*inputs[:6], None, *inputs[7:]))["y"]
    anything = torch.where(size > torch.finfo(case.dtype).max, math.inf, 0.0)
    return {"y": anything, "dz": anything} if case.z else {"y": anything}


def running_sums(case: cases.Case, inputs, sizes: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of the gradients of dt' A, differences of sums in double over a sequence's tokens.

    Each may be off by length · 2^-53 of what is added up of its sequence, at most of all. A times
    that is in what ddt of a sequence's tokens is a sum of.
    """
    steps = cases.steps_of(
        case, *(None if inputs[i] is None else inputs[i].double() for i in (1, 7))
    )
    tokens = steps.numel() // case.heads
    off = case.length * torch.finfo(FP64).eps / 2 * sizes["ddt"].reshape(-1, case.heads).sum(0)
    of_all = steps.reshape(-1, case.heads).sum(0)
    return {"ddt": off, "ddt_bias": tokens * off, "dA": of_all / inputs[2].double().abs() * off}


def underflow(case: cases.Case, inputs) -> dict[str, Tensor]:
    """What may be lost of each result and gradient where factors underflow on the way to it.

    A factor is multiplied by the rest of its term, which is at most that of the same call without
    decays, of values that are at least 1; and then, but for states, by what brings a row back.
    """
    x, dt, A, B, C, D, z, bias, initial, *incoming = inputs
    least = {"x": x, "B": B, "C": C, "D": D, "initial": initial}
    ones = {n: t if t is None else t.double().abs().clamp(min=1) for n, t in least.items()}
    steps = cases.steps_of(case, dt.double(), None if bias is None else bias.double()).clamp(min=1)
    plain = dataclasses.replace(case, softplus=False, limit=(0.0, math.inf), bias=False)
    values = (ones["x"], steps, torch.zeros_like(A), ones["B"], ones["C"], ones["D"], z, None)
    found = cases.sizes(plain, (*values, ones["initial"], *incoming))
    lost, back = lost_to_underflow(case.dtype), brought_back(case.dtype)
    return {
        name: (lost if name in ("final_state", "dinitial_state") else back * lost) * size
        for name, size in found.items()
    }
