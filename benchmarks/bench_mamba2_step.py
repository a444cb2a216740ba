"""One token of Mamba-2: memory-bound, so every figure is minimum bytes / time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from benchmarks import recurrent_step
from benchmarks.harness import Case, Inputs, Panel
from benchmarks.recurrent_step import Problem

PANELS = (Panel("mamba2, a step", False, 2),)
SHAPES = tuple((batch, 32, 64, 1, width) for batch in (1, 8, 64) for width in (64, 128))


def make_inputs(shape: tuple[int, ...], seed: int) -> Inputs:
    """x, B and C normally distributed, and the states; steps and decays as Mamba-2 begins with."""
    batch, heads, head_width, groups, state_width = shape
    normal = recurrent_step.generator(seed)
    inputs = {"x": normal(batch, heads, head_width), "dt": normal(batch, heads)}
    inputs |= {name: normal(batch, groups, state_width) for name in "BC"}
    inputs = {name: t.to(torch.bfloat16) for name, t in inputs.items()}
    at = torch.linspace(0, 1, heads, device=inputs["x"].device)
    inputs["A"] = -(1 + 15 * at)
    inputs["dt_bias"] = torch.log(torch.expm1(0.001 * 100.0**at))  # steps of 0.001 to 0.1
    inputs["D"] = torch.ones_like(at)
    inputs["state"] = normal(batch, heads, head_width, state_width)
    return inputs


def step(i: Inputs) -> torch.Tensor:
    """y."""
    import thunderkittens

    given = (i["x"], i["dt"], i["A"], i["B"], i["C"], i["state"])
    return thunderkittens.mamba2_step(*given, D=i["D"], dt_bias=i["dt_bias"], dt_softplus=True)


def sizes(i: Inputs) -> torch.Tensor:
    """Y of absolute values: the decays are what they are."""
    return step(i | {name: i[name].abs() for name in ("x", "B", "C", "D", "state")})


def cases(quick: bool = False) -> Iterator[Case]:
    """From the smallest batch to the largest."""
    problems = (
        Problem(
            op="mamba2_step",
            shape="B{} H{} P{} G{} N{}".format(*shape),
            inputs=partial(make_inputs, shape),
            states=("state",),
            rewritten=("state",),
            step=step,
            sizes=sizes,
        )
        for shape in SHAPES
    )
    return recurrent_step.cases(problems, quick)
