"""One token of linear attention: memory-bound, so every figure is minimum bytes / time.

Minimum bytes: read and write the states in float32, read q, k and v, write o.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks import harness
from benchmarks.harness import OURS, Call, Case, Expected, Inputs, Panel

PANELS = (Panel("linear attention, a step", False, 2),)


@dataclass(frozen=True)
class Shape:
    """Sizes of one problem; q, k and v are bf16."""

    batch: int
    heads: int
    head_dim: int

    def __str__(self) -> str:
        return f"B{self.batch} H{self.heads} D{self.head_dim}"

    def minimum_bytes(self) -> int:
        """Bytes that any implementation must move."""
        heads = self.batch * self.heads
        return heads * (2 * 4 * self.head_dim**2 + 4 * 2 * self.head_dim)


SHAPES = tuple(
    Shape(batch, heads, width) for batch in (1, 8, 64) for heads in (16, 32) for width in (64, 128)
)


def make_inputs(shape: Shape, seed: int) -> Inputs:
    """q, k, v and the states, normally distributed; decays of each token and head."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)

    def normal(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, device=harness.DEVICE, generator=random)

    heads, width = (shape.batch, shape.heads), shape.head_dim
    inputs = {name: normal(*heads, width).to(torch.bfloat16) for name in "qkv"}
    inputs["state"] = normal(*heads, width, width)
    inputs["log_decay"] = -0.1 * torch.rand(heads, device=harness.DEVICE, generator=random)
    return inputs


def updated(i: Inputs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The definition: o, and the states after the token, in the states' dtype."""
    q, k, v, decay = (i[name].to(state.dtype) for name in ("q", "k", "v", "log_decay"))
    state = state * decay.exp()[..., None, None] + k[..., None] * v[..., None, :]
    return q.shape[-1] ** -0.5 * (q[..., None] * state).sum(-2), state


def expected(i: Inputs) -> Expected:
    """o and the states in float64: a few roundings in float32, and of o one in bf16."""
    o, state = updated(i, i["state"].double())
    magnitudes = {n: t if n == "log_decay" else t.abs() for n, t in i.items()}
    size, kept = updated(magnitudes, i["state"].double().abs())
    rounding = torch.finfo(torch.float32).eps
    of_sum = rounding * (8 + i["q"].shape[-1] ** 0.5)
    half = torch.finfo(torch.bfloat16).eps / 2
    return [(o, half * o.abs() + of_sum * size), (state, 4 * rounding * kept)]


def ours(i: Inputs) -> Call:
    """`linear_attention_step`, again and again on states of its own."""
    import thunderkittens

    state, step = i["state"].clone(), thunderkittens.linear_attention_step
    return lambda: (step(i["q"], i["k"], i["v"], state, log_decay=i["log_decay"]), state)


def eager(i: Inputs) -> Call:
    """Torch's own ops, in place."""
    state = i["state"].clone()

    def run() -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = (i[name].float() for name in "qkv")
        state.mul_(i["log_decay"].exp()[..., None, None])
        state.addcmul_(k[..., None], v[..., None, :])
        o = torch.einsum("bhk,bhkv->bhv", q, state) * q.shape[-1] ** -0.5
        return o.to(torch.bfloat16), state

    return run


CONTENDERS = {OURS: ours, "torch": eager}


def cases(quick: bool = False) -> Iterator[Case]:
    """From the smallest batch to the largest; `quick` takes the first shape and the last."""
    for shape in (SHAPES[0], SHAPES[-1]) if quick else SHAPES:
        yield Case(
            op="linear_attention_step",
            shape=str(shape),
            dtype="bf16",
            work=shape.minimum_bytes(),
            unit="TB/s",
            inputs=partial(make_inputs, shape),
            expected=expected,
            contenders=CONTENDERS,
            resident=shape.minimum_bytes() // 2,
        )
