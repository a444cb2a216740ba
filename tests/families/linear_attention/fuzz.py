"""linear_attention: a recurrence by chunks, its sums bounded by those of absolute values."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

import thunderkittens
from tests.families.linear_attention import cases
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import DTYPES, FP32, FP64, Draw, split
from tests.fuzz.judge import brought_back, lost_to_underflow
from thunderkittens.testing import tolerance

OPS = ("linear_attention",)
# A GPU's cases of many chunks, packed, which the others are too short for.
LARGE = (12, 43)
# Of which factors underflow, or decays have large exponents: cases that were wrong once.
AT_THE_ENDS = (14242, 14368)
# Sums of products of the others leave float16's range, of which the docstring speaks.
REGIMES = ("normal", "positive", "small", "sparse", "constant", "constant rows")
NAMES = ("q", "k", "v", "log_decay", "initial_state")


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    exact = FP64 if dtype == FP64 else FP32
    most = draw.elements()
    keys, values = (draw.choice((8, 16, 64, 128, 8 * draw.integer(1, 16), 7)) for _ in "kv")
    heads = draw.choice((1, 2, 4, 6))
    key_heads = draw.choice([n for n in (1, 2, 3, heads) if heads % n == 0])
    length = draw.size(min(2000, max(1, most // (heads * max(keys, values)))))
    packed = draw.chance(0.3)
    ends = tuple(itertools.accumulate((0, *split(draw, length)))) if packed else ()
    case = cases.Case(
        batch=1 if packed else draw.choice((1, 1, 2)),
        length=length,
        heads=heads,
        key_heads=key_heads,
        key_width=keys,
        value_width=values,
        dtype=dtype,
        decay=draw.choice(cases.DECAYS),
        states=draw.chance(0.6),
        scale=draw.choice((None, None, 1.0, -0.5)),
        ends=ends,
    )
    inputs, incoming = drawn(draw, case, exact)
    leaves = tuple(name for name in inputs if draw.chance(0.7)) if incoming else ()
    if not leaves:
        incoming = {}
    if packed:
        numbers = torch.tensor(ends, device=draw.device)
        inputs["cu_seqlens"] = draw.place(numbers.int() if draw.chance(0.5) else numbers)

    def call(tensors: Tensors) -> Tensors:
        results = thunderkittens.linear_attention(
            **tensors, scale=case.scale, output_final_state=case.states
        )
        return dict(zip(("o", "state"), results if case.states else (results,), strict=False))

    def judge(results: Tensors) -> dict[str, Judged]:
        given = [inputs[n].values if n in inputs else None for n in NAMES]
        of_results = [incoming[n].values if n in incoming else None for n in ("o", "state")]
        if not incoming:  # gradients that nobody asks for
            of_results = [torch.zeros_like(results["o"]), results.get("state")]
        judged = references(case, (*given, *of_results))
        return {name: judged[name] for name in results}

    title = describe(
        dtype=dtype_name(dtype),
        case=str(case),
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        leaves=leaves,
    )
    return Case(title, inputs, call, judge, leaves, incoming)


def drawn(draw: Draw, case: cases.Case, exact: torch.dtype):
    """The inputs, and the gradients of the results, or none."""
    tokens = (case.length,) if case.ends else (case.batch, case.length)
    regime = draw.choice(REGIMES)
    shapes = {
        "q": (*tokens, case.key_heads, case.key_width),
        "k": (*tokens, case.key_heads, case.key_width),
        "v": (*tokens, case.heads, case.value_width),
    }
    inputs = {
        name: draw.place(draw.values(shape, case.dtype, regime), expand=True)
        for name, shape in shapes.items()
    }
    if case.decay != "none":
        shape = (case.heads,) if case.decay == "head" else (*tokens, case.heads)
        strength = draw.choice((1e-3, 0.2, 5.0, 80.0))
        decay = (-strength * draw.uniform(shape)).to(exact)
        inputs["log_decay"] = draw.place(decay, expand=True)
    state = (case.sequences, case.heads, case.key_width, case.value_width)
    incoming = {"o": draw.place(draw.values(shapes["v"], case.dtype, "normal"), expand=True)}
    if case.states:
        inputs["initial_state"] = draw.place(draw.values(state, exact, "normal"), expand=True)
        incoming["state"] = draw.place(draw.values(state, exact, "normal"), expand=True)
    return inputs, incoming if draw.chance(0.8) else {}


def references(case: cases.Case, tensors) -> dict[str, Judged]:
    """All results and gradients, and their bounds."""
    names = [*(("o", "state") if case.states else ("o",)), "dq", "dk", "dv"]
    names += ["dlog_decay"] * (case.decay != "none") + ["dinitial_state"] * case.states
    # The parallel form's differences of long sums of decays are less exact than float64's bound.
    form = cases.recurrence if case.dtype == FP64 else cases.parallel
    want = dict(zip(names, cases.reference(case, tensors, form), strict=True))
    sizes = dict(
        zip(
            names,
            cases.reference(*cases.magnitudes(case, tensors), cases.parallel),
            strict=True,
        )
    )
    if case.decay != "none":
        sizes["dlog_decay"] = cases.decay_sizes(case, tensors, sizes)
    lost = underflow(case, tensors, names)
    exponents, found = cases.error_of_exponents(case, tensors), {}
    for name in names:
        bound = tolerance.linear_attention(want[name], sizes[name], case.dtype, case.length)
        # A difference of sums in double over all tokens, one by one; and the recurrence itself, in
        # which a token is multiplied by one rounded decay as often as there are tokens behind it.
        if name == "dlog_decay" or case.dtype == FP64:
            bound = bound + case.length * torch.finfo(FP64).eps / 2 * sizes[name]
        found[name] = Judged(want[name], bound + exponents * sizes[name] + lost[name])
    return found


def underflow(case: cases.Case, inputs, names: list[str]) -> dict[str, Tensor]:
    """What may be lost of each result and gradient where factors underflow on the way to it.

    A factor is multiplied by the rest of its term, which is at most that of the same call without
    decays, of values that are at least 1; and then, but for states, by what brings a row back.
    """
    case, values = cases.magnitudes(case, inputs)
    ones = [
        t if t is None else torch.zeros_like(t) if i == 3 else t.clamp(min=1)
        for i, t in enumerate(values)
    ]
    lost, back = lost_to_underflow(case.dtype), brought_back(case.dtype)
    return {
        name: (lost if name in ("state", "dinitial_state") else back * lost) * size
        for name, size in zip(names, cases.reference(case, ones, cases.parallel), strict=True)
    }
