"""hedgehog_attention and its step, with states or without: what they give, by the definition.

Features, weights and states are rounded to 16 bits: three roundings on a path to N or D, and that
of y = N / D. Sums are in float32, exponents are off by roundings of products of up to 256 terms.

Without states there are gradients, too, of all inputs. What is rounded on their way are parts of
dy, of which many add up, and may cancel: so an element's bound is of the largest of its tensor, and
of dy.
"""

from __future__ import annotations

import torch
from torch import Tensor

import thunderkittens
from tests.families.hedgehog_attention import cases, steps
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import BF16, FP16, FP32, FP64, Draw
from thunderkittens import HedgehogState

OPS = ("hedgehog_attention", "hedgehog_attention_step")
DTYPES = {BF16: 6, FP16: 4, FP32: 1, FP64: 1}
# A GPU's case in which all tokens have one key: the roundings of its features add up.
LARGE_KERNELS = (810000310,)
FIXED = ("q_map", "k_map", "alpha", "beta")
STATE = HedgehogState._fields


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    exact = FP64 if dtype == FP64 else FP32
    width = value_width = 128
    columns = 64
    if draw.chance(0.3):  # torch's, but for a few
        width, value_width, columns = (draw.size(n) for n in (80, 80, 40))
    elif draw.chance(0.5):
        width, value_width = (8 * draw.size(16) for _ in "qv")
    step = op.endswith("_step")
    most = 1 << (14 if draw.large else 9)
    batch, heads = draw.size(3), draw.size(4)
    seq = 1 if step else draw.size(max(1, most // (batch * heads)))
    states = step or draw.chance(0.5)

    def normal(*shape: int, size: float = 1.0) -> Tensor:
        return (size * draw.normal(shape)).to(dtype)

    sharp = draw.choice((0.1, 1.0, 1.0, 3.0))
    leading = (batch, heads) if step else (batch, seq, heads)
    inputs = {
        "q": draw.place(normal(*leading, width, size=sharp), expand=True),
        "k": draw.place(normal(*leading, width, size=sharp), expand=True),
        # Means of positive values have errors that can be told from roundings.
        "v": draw.place(normal(*leading, value_width).abs(), expand=True),
    }
    for name in ("q_map", "k_map"):
        inputs[name] = draw.place(normal(heads, width, columns, size=width**-0.5), expand=True)
    for name in ("alpha", "beta"):
        inputs[name] = draw.place((draw.uniform((heads,)) + 0.01).to(exact), expand=True)
    if states:
        length = draw.integers((batch,), 0, draw.choice((10, 100, 10**6)))
        exists = (torch.arange(64, device=draw.device) < length[:, None])[..., None, None]
        state = (
            draw.normal((batch, heads, 2 * columns, value_width)).to(exact),
            draw.uniform((batch, heads, 2 * columns)).to(exact),
            normal(batch, 64, heads, width, size=sharp) * exists,
            normal(batch, 64, heads, value_width) * exists,
            length,
        )
        inputs |= {n: draw.place(t) for n, t in zip(STATE, state, strict=True)}

    leaves, incoming = (), {}
    if not step and not states and draw.chance(0.25):
        leaves = tuple(inputs)
        incoming = {"y": draw.place(normal(*leading, value_width), expand=True)}

    def call(tensors: Tensors) -> Tensors:
        state = HedgehogState(*(tensors[n] for n in STATE)) if states else None
        given = [tensors[n] for n in ("q", "k", "v", "q_map", "k_map")]
        weights = {"alpha": tensors["alpha"], "beta": tensors["beta"]}
        if step:
            return {"y": thunderkittens.hedgehog_attention_step(*given, **weights, state=state)}
        return {"y": thunderkittens.hedgehog_attention(*given, **weights, initial_state=state)}

    def judge(results: Tensors) -> dict[str, Judged]:
        values = {n: p.values for n, p in inputs.items()}
        tokens = [values[n].unsqueeze(1) if step else values[n] for n in ("q", "k", "v")]
        fixed = [values[n] for n in FIXED]
        before = [values[n] for n in STATE] if states else []
        if step:
            y, size, *_ = steps.definition(tokens, fixed, HedgehogState(*before))
            y, size = y.squeeze(1), size.squeeze(1)
            size = size + y.abs()
        else:
            found = cases.definition(*cases.to_double([*tokens, *fixed, *before]))
            y, size = found[0], found[6]
        inner = torch.finfo(exact).eps
        roundings = 3 if draw.kernels and not step and dtype in (FP16, BF16) else 0
        # Exponents are sums of up to 256 products of numbers of a few units each.
        slack = 64 * inner * (8 + 30 * sharp * sharp) + roundings * torch.finfo(dtype).eps / 2
        bound = slack * size + torch.finfo(dtype).eps * y.abs() + torch.finfo(dtype).tiny
        judged = {"y": Judged(y.detach(), bound.detach())}
        if incoming:
            judged |= gradients([*tokens, *fixed], incoming["y"].values, dtype, sharp)
        return judged

    title = describe(
        dtype=dtype_name(dtype),
        q=list(inputs["q"].view.shape),
        value_width=value_width,
        columns=columns,
        states=states,
        sharp=sharp,
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
    )
    return Case(title, inputs, call, judge, leaves, incoming, written=STATE if step else ())


def gradients(
    inputs: list[Tensor], dy: Tensor, dtype: torch.dtype, sharp: float
) -> dict[str, Judged]:
    """Of all inputs; a dozen roundings of rms u / √3, at a few times that.

    What is summed over tokens has errors that are independent where the tokens differ, and one sign
    where a tensor repeats one. The values have a mean here, of which a rounded state makes an error
    that the 64 tokens of a block have in common: √64 times u / √3, in the sums over tokens, beside
    √12 times of the others.
    """
    unit = torch.finfo(dtype).eps / 2
    if dtype in (FP32, FP64):  # sums of many terms, and of exponents' errors
        unit *= 64 * (8 + 30 * sharp * sharp)
    leaves = [t.double().detach().requires_grad_() for t in inputs]
    y = cases.definition(*leaves)[0]
    wants = torch.autograd.grad(y, leaves, dy.double())
    tokens = dy.shape[0] * dy.shape[1]
    differ = min(len(t.flatten(0, 1).unique(dim=0)) for t in inputs[:3])
    keys_repeat = any(len(keys.unique(dim=0)) < len(keys) for keys in inputs[1])  # in a sequence
    judged = {}
    for name, want in zip(("q", "k", "v", *FIXED), wants, strict=True):
        summed, times = (1.0, 4) if want.dim() == 4 else (tokens / differ**0.5, 4 + 9)
        parts = (1 + sharp) * summed * dy.double().square().mean().sqrt()
        bound = unit * (16 * want.abs().amax() + times * parts) + torch.finfo(dtype).tiny
        if name == "k" and dtype in (FP32, FP64) and keys_repeat:
            # Products round the scores of equal keys differently, so that which of them is the
            # largest, and has its part of dk, is not determined: only dk's size is judged.
            bound = bound + 4 * want.abs().amax()
        judged[f"d{name}"] = Judged(want, bound.expand_as(want))
    return judged
