"""Rotary embedding of q and k: memory-bound, so every figure is minimum bytes / time.

Minimum bytes: read and write q and k, read the tables' rows. The backward is the same kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks import harness, peers_rotary
from benchmarks.harness import OURS, Call, Case, Expected, Headline, HostCalls, Inputs, Panel
from thunderkittens.testing import tolerance

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
PANELS = (Panel("rotary", False, 0),)
HEADLINES = (
    Headline("rotary, 16384 tokens, 32 + 8 heads of 128", "rotary", "B4 S4096 H32+8 D128"),
)


@dataclass(frozen=True)
class Shape:
    """Sizes of one problem; `rotated` of the head's elements are turned."""

    batch: int
    seq: int
    heads: int
    key_heads: int
    head_dim: int
    rotated: int
    interleaved: bool = False
    dtype: str = "bf16"

    def __str__(self) -> str:
        parts = [f"B{self.batch} S{self.seq} H{self.heads}+{self.key_heads} D{self.head_dim}"]
        parts += [f"R{self.rotated}"] * (self.rotated != self.head_dim)
        return " ".join([*parts, *["interleaved"] * self.interleaved])

    def minimum_bytes(self) -> int:
        """Bytes that any implementation must move."""
        heads = self.batch * self.seq * (self.heads + self.key_heads) * self.head_dim
        return (2 * heads + self.seq * self.rotated) * DTYPES[self.dtype].itemsize


SHAPES = (
    Shape(4, 4096, 32, 32, 128, 128),
    Shape(4, 4096, 32, 8, 128, 128),
    Shape(4, 4096, 32, 32, 64, 64),
    Shape(4, 4096, 32, 32, 80, 32),
    Shape(4, 4096, 32, 32, 96, 96),
    Shape(4, 4096, 16, 16, 256, 256),
    Shape(4, 4096, 32, 32, 128, 128, interleaved=True),
    Shape(4, 4096, 32, 32, 128, 128, dtype="fp32"),
    Shape(1, 1, 32, 8, 128, 128),
    Shape(16, 1, 32, 8, 128, 128),
    Shape(64, 1, 32, 8, 128, 128),
)


def make_inputs(shape: Shape, seed: int) -> Inputs:
    """q and k, normally distributed; cos and sin of random angles, all of one dtype."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)
    dtype, tokens = DTYPES[shape.dtype], (shape.batch, shape.seq)

    def normal(heads: int) -> torch.Tensor:
        sizes = (*tokens, heads, shape.head_dim)
        return torch.randn(sizes, device=harness.DEVICE, generator=random).to(dtype)

    sizes = (shape.seq, shape.rotated // 2)
    angles = 6.3 * torch.rand(sizes, device=harness.DEVICE, generator=random)
    return {
        "q": normal(shape.heads),
        "k": normal(shape.key_heads),
        "cos": angles.cos().to(dtype),
        "sin": angles.sin().to(dtype),
    }


def expected(i: Inputs, interleaved: bool) -> Expected:
    """Both operands in float64, and their bounds."""
    return [tolerance.rotary(i[name], i["cos"], i["sin"], interleaved) for name in "qk"]


def ours(i: Inputs, interleaved: bool) -> Call:
    """`rotary` without gradients."""
    import thunderkittens

    run = partial(thunderkittens.rotary, interleaved=interleaved)
    return lambda: run(i["q"], i["k"], i["cos"], i["sin"])


CONTENDERS = {
    OURS: ours,
    "torch": peers_rotary.eager,
    "torch.compile": peers_rotary.compiled,
    "Liger": peers_rotary.liger,
    "flash-attn Triton": peers_rotary.flash,
}


def cases(quick: bool = False) -> Iterator[Case]:
    """Prefill, then decoding; `quick` keeps the first two shapes."""
    for shape in SHAPES[:2] if quick else SHAPES:
        yield Case(
            op="rotary",
            shape=str(shape),
            dtype=shape.dtype,
            work=shape.minimum_bytes(),
            unit="TB/s",
            inputs=partial(make_inputs, shape),
            expected=partial(expected, interleaved=shape.interleaved),
            contenders={
                name: partial(build, interleaved=shape.interleaved)
                for name, build in CONTENDERS.items()
            },
            resident=shape.minimum_bytes(),
        )


def host_calls(gradient: bool) -> HostCalls:
    """For bench_host: op -> contender -> call."""
    import thunderkittens

    q, k = harness.host_tensors(2, (1, 128, 2, 64), gradient)
    cos, sin = harness.host_tensors(2, (128, 32), False)
    return {
        "rotary": {
            OURS: lambda: thunderkittens.rotary(q, k, cos, sin),
            "torch": lambda: peers_rotary.formula(q, k, cos, sin, False),
        }
    }
