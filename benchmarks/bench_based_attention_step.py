"""One token of Based attention: memory-bound, so every figure is minimum bytes / time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from benchmarks import recurrent_step
from benchmarks.harness import Case, Inputs, Panel
from benchmarks.recurrent_step import Problem

PANELS = (Panel("based, a step", False, 2),)
SHAPES = tuple((batch, 16, 16, width) for batch in (1, 8, 64) for width in (64, 128))
EARLIER = 32  # tokens that are in the states


def make_inputs(shape: tuple[int, ...], seed: int) -> Inputs:
    """q, k and v, normally distributed, and the states of as many earlier tokens."""
    import thunderkittens

    batch, heads, key_width, value_width = shape
    normal = recurrent_step.generator(seed)
    widths = {"q": key_width, "k": key_width, "v": value_width}
    inputs = {n: normal(batch, heads, width).to(torch.bfloat16) for n, width in widths.items()}
    features = thunderkittens.based_features(normal(batch, heads, EARLIER, key_width))
    inputs["state"] = features.mT @ normal(batch, heads, EARLIER, value_width)
    inputs["sums"] = features.sum(2)
    return inputs


def step(i: Inputs) -> torch.Tensor:
    """o."""
    import thunderkittens

    return thunderkittens.based_attention_step(i["q"], i["k"], i["v"], (i["state"], i["sums"]))


def sizes(i: Inputs) -> torch.Tensor:
    """The numerator's absolute terms and, as far as o depends on them, the denominator's."""
    import thunderkittens

    of_q, of_k = (thunderkittens.based_features(i[name]) for name in "qk")
    state = (i["state"] + of_k[..., None] * i["v"][..., None, :]).abs()
    sums = i["sums"] + of_k
    numerator = (of_q.abs()[..., None] * state).sum(-2)
    total = (of_q * sums).sum(-1, keepdim=True).abs()
    terms = (of_q * sums).abs().sum(-1, keepdim=True)
    return numerator / total * (1 + terms / total)


def cases(quick: bool = False) -> Iterator[Case]:
    """From the smallest batch to the largest."""
    problems = (
        Problem(
            op="based_attention_step",
            shape="B{} H{} D{} V{}".format(*shape),
            inputs=partial(make_inputs, shape),
            states=("state", "sums"),
            rewritten=("state", "sums"),
            step=step,
            sizes=sizes,
        )
        for shape in SHAPES
    )
    return recurrent_step.cases(problems, quick)
