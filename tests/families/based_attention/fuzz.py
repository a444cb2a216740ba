"""based_attention: a quotient of sums of weights, bounded by those of absolute values."""

from __future__ import annotations

import torch
from torch import Tensor

import thunderkittens
from tests.families.based_attention import cases
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import DTYPES, FP16, FP32, FP64, Draw
from tests.fuzz.judge import lost_to_underflow
from tests.fuzz.placement import Placed
from thunderkittens.testing import tolerance

OPS = ("based_attention",)
# A GPU's cases of several chunks, which the others are too short for.
LARGE = (6, 40)
# Sums of products of the others leave float16's range, of which the docstring speaks.
REGIMES = ("normal", "positive", "small", "sparse", "constant", "constant rows")
REGIMES_FP16 = ("normal", "positive", "small", "sparse")
# A GPU's case in float64, of products whose terms are alike.
LARGE = (810000290,)
INPUTS = ("q", "k", "v", "initial_state", "initial_sums")
RESULTS = ("o", "final_state", "final_sums")


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    exact = FP64 if dtype == FP64 else FP32
    most = draw.elements()
    heads = draw.choice((1, 2, 3, 4))
    keys = draw.choice((8, 16, 16, 16, 32, draw.integer(1, 16)))
    values = draw.choice((8, 64, 64, 8 * draw.integer(1, 10), 128, 7))
    case = cases.Case(
        batch=draw.choice((1, 1, 2)),
        length=draw.size(min(2000, max(1, most // (heads * max(keys, values))))),
        heads=heads,
        key_width=keys,
        value_width=values,
        dtype=dtype,
        normalize=draw.chance(0.7),
        states=draw.chance(0.6),
        scale=draw.choice((None, None, 1.0, 0.3)),
    )
    inputs, incoming, regime = drawn(draw, case, exact)
    leaves = tuple(name for name in inputs if draw.chance(0.7)) if incoming else ()
    if not leaves:
        incoming = {}

    def call(tensors: Tensors) -> Tensors:
        given = [tensors.get(name) for name in INPUTS]
        return dict(zip(RESULTS, cases.call(case, *given), strict=False))

    def judge(results: Tensors) -> dict[str, Judged]:
        given = [inputs[n].values if n in inputs else None for n in INPUTS]
        of_results = [incoming[n].values if n in incoming else None for n in RESULTS]
        if not incoming:  # gradients that nobody asks for
            of_results = [torch.zeros_like(results[n]) if n in results else None for n in RESULTS]
        placed = (*inputs.values(), *incoming.values())
        equal = regime.startswith("constant") or any(0 in p.strides for p in placed)
        judged = references(case, (*given, *of_results), equal)
        return {name: judged[name] for name in results}

    title = describe(
        dtype=dtype_name(dtype),
        case=str(case),
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        leaves=leaves,
    )
    return Case(title, inputs, call, judge, leaves, incoming)


def drawn(
    draw: Draw, case: cases.Case, exact: torch.dtype
) -> tuple[dict[str, Placed], dict[str, Placed], str]:
    """The inputs, and the gradients of the results, or none; and what the inputs are like."""
    tokens = (case.batch, case.length, case.heads)
    regime = draw.choice(REGIMES_FP16 if case.dtype == FP16 else REGIMES)
    shapes = {
        "q": (*tokens, case.key_width),
        "k": (*tokens, case.key_width),
        "v": (*tokens, case.value_width),
    }
    inputs = {
        name: draw.place(draw.values(shape, case.dtype, regime), expand=True)
        for name, shape in shapes.items()
    }
    incoming = {"o": draw.place(draw.values(shapes["v"], case.dtype, "normal"), expand=True)}
    if case.states:
        rows = (case.batch, case.heads, cases.feature_count(case.key_width))
        # Of some tokens, so that the sums are some that can be.
        before = thunderkittens.based_features(draw.normal((*rows[:2], 5, case.key_width)))
        state = before.mT @ draw.normal((*rows[:2], 5, case.value_width))
        inputs["initial_state"] = draw.place(state.to(exact))
        shape = (*rows, case.value_width)
        incoming["final_state"] = draw.place(draw.values(shape, exact, "normal"), expand=True)
        if case.normalize:
            inputs["initial_sums"] = draw.place(before.sum(2).to(exact))
            incoming["final_sums"] = draw.place(draw.values(rows, exact, "normal"), expand=True)
    return inputs, incoming if draw.chance(0.8) else {}, regime


def references(case: cases.Case, tensors, equal_terms: bool) -> dict[str, Judged]:
    """All results and gradients, and their bounds; `equal_terms`: of sums, as equal tokens have."""
    of_all = zip(
        cases.names(case), *cases.reference(case, tensors), underflow(case, tensors), strict=True
    )
    # Torch takes keys wider than the kernels' 16, whose features are more than a bound counts.
    features = cases.feature_count(case.key_width)
    length = case.length + max(0, features - 256)
    one_sign = sums_in_a_row(case, features) if equal_terms else 0.0
    return {
        name: Judged(
            want,
            tolerance.based_attention(want, size, case.dtype, length) + one_sign * size + lost,
        )
        for name, want, size, lost in of_all
    }


def sums_in_a_row(case: cases.Case, features: int) -> float:
    """How far equal terms may be off their sums, relative to these: all roundings have one sign.

    A product of matrices adds n of them in a row, and is off by n · eps / 2 (Higham's γ, 3.1). A
    state is a sum over tokens, and a numerator or a denominator one over features of it, beside
    the squares of scores, sums over D. The gradient of a state takes three of these, and sums over
    values and over tokens; that of v or k one over its features or values more. So it is at most
    four times each of them. In float64 the reference is off by as much.
    """
    inner = FP64 if case.dtype == FP64 else FP32
    terms = case.length + features + case.value_width + 1 + 2 * case.key_width
    computed = 2 if case.dtype == FP64 else 1
    return computed * 4 * terms * torch.finfo(inner).eps / 2


def underflow(case: cases.Case, tensors) -> list[Tensor]:
    """What may be lost of each result and gradient where factors are near zero, as float16's are.

    A term has three factors that are rounded before a product: features of q, of k or the state's
    sum, and the gradient of a sum. Without one of them it is at most what it is with factors of at
    least 1, divided by the least coefficient of a feature.
    """
    given = cases.augmented(case, *tensors[:5])
    *_, d_o, d_state, d_sums = tensors
    scale = cases.scale_of(case)
    sums, state = cases.parallel(*given, scale)
    denominator = sums[..., -1:] + 1e-12 if case.normalize else torch.ones_like(sums[..., :1])
    d_final = torch.zeros_like(state)
    if case.states:
        d_final = d_state.double()
        if case.normalize:
            d_final = torch.cat([d_final, d_sums.double()[..., None]], -1)
    incoming = (d_o.double(), d_final)
    found = cases.sizes(case, given, denominator, incoming, least=1.0)
    lost = 3 * lost_to_underflow(case.dtype) / min(1.0, scale * 0.5**0.5)
    return [lost * size for size in found]
