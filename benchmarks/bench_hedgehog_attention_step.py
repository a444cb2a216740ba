"""One token of Hedgehog attention: memory-bound, so every figure is minimum bytes / time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from benchmarks import recurrent_step
from benchmarks.harness import Case, Inputs, Panel
from benchmarks.recurrent_step import Problem

PANELS = (Panel("hedgehog, a step", False, 2),)
SHAPES = tuple((batch, 16, width) for batch in (1, 8, 64) for width in (64, 128))
EARLIER = 200  # tokens that are in the states: more than the window has
STATES = ("kv_state", "k_state", "k_cache", "v_cache", "length")


def make_inputs(shape: tuple[int, ...], seed: int) -> Inputs:
    """q, k and v, normally distributed, maps that keep their size, and earlier tokens' states."""
    import thunderkittens

    batch, heads, width = shape
    normal = recurrent_step.generator(seed)
    inputs = {name: normal(batch, heads, width).to(torch.bfloat16) for name in "qkv"}
    for name in ("q_map", "k_map"):
        weights = normal(heads, width, width // 2) * width**-0.5
        inputs[name] = weights.to(torch.bfloat16)
    for name in ("alpha", "beta"):
        inputs[name] = torch.full((heads,), 0.5, device=inputs["q"].device)
    earlier = [normal(batch, EARLIER, heads, width).to(torch.bfloat16) for _ in "qkv"]
    maps = (inputs["q_map"], inputs["k_map"])
    weights = {name: inputs[name] for name in ("alpha", "beta")}
    with thunderkittens.backend("torch"):
        _, state = thunderkittens.hedgehog_attention(
            *earlier, *maps, **weights, output_final_state=True
        )
    return inputs | {name: getattr(state, name) for name in STATES}


def step(i: Inputs) -> torch.Tensor:
    """y."""
    import thunderkittens

    return thunderkittens.hedgehog_attention_step(
        *(i[name] for name in ("q", "k", "v", "q_map", "k_map")),
        alpha=i["alpha"],
        beta=i["beta"],
        state=thunderkittens.HedgehogState(**{name: i[name] for name in STATES}),
    )


def sizes(i: Inputs) -> torch.Tensor:
    """Y of absolute values, twice: the weights are positive, and their sum divides them."""
    return 2 * step(i | {name: i[name].abs() for name in ("v", "v_cache", "kv_state")})


def cases(quick: bool = False) -> Iterator[Case]:
    """From the smallest batch to the largest."""
    problems = (
        Problem(
            op="hedgehog_attention_step",
            shape="B{} H{} D{}".format(*shape),
            inputs=partial(make_inputs, shape),
            states=STATES,
            rewritten=("kv_state", "k_state", "length"),
            step=step,
            sizes=sizes,
        )
        for shape in SHAPES
    )
    return recurrent_step.cases(problems, quick)
