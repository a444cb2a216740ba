"""Linear attention with constant decays: memory-bound, so every figure is minimum bytes / time.

Minimum bytes: forward, read q, k and v and write o; backward, read those and do, write dq, dk and
dv. Each point has 32768 tokens and heads · head_dim = 2048, from many streams of chunks to few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks import harness, peers_linear_attention
from benchmarks.harness import OURS, Call, Case, Expected, HostCalls, Inputs, Panel
from thunderkittens.testing import tolerance

PANELS = (
    Panel("linear attention", False, 2),
    Panel("linear attention, backward", True, 2),
)


@dataclass(frozen=True)
class Shape:
    """Sizes of one problem, in bf16."""

    batch: int
    seq: int
    heads: int
    head_dim: int

    def __str__(self) -> str:
        return f"B{self.batch} S{self.seq} H{self.heads} D{self.head_dim}"

    def tensor_bytes(self) -> int:
        """Of one of q, k, v, o and their gradients."""
        return 2 * self.batch * self.seq * self.heads * self.head_dim


SHAPES = tuple(
    Shape(batch, 32768 // batch, 2048 // width, width)
    for width in (64, 128)
    for batch in (32, 8, 2)
)


def make_inputs(shape: Shape, seed: int) -> Inputs:
    """q, k, v and do, normally distributed; the decays of retention."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)
    sizes = (shape.batch, shape.seq, shape.heads, shape.head_dim)
    inputs = {
        name: torch.randn(sizes, device=harness.DEVICE, generator=random).to(torch.bfloat16)
        for name in ("q", "k", "v", "do")
    }
    heads = torch.arange(shape.heads, device=harness.DEVICE, dtype=torch.float32)
    inputs["log_decay"] = torch.log1p(-(2.0 ** (-5 - heads.clamp(max=20))))
    return inputs


def of_head(q, k, v, decay, reverse: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """One head's recurrence in float64 and its sum of absolute values, [S, V], row by row."""
    seq, rows = q.shape[0], 1024
    at = torch.arange(seq, device=q.device, dtype=torch.float64)
    results = []
    for first in range(0, seq, rows):
        distance = at[first : first + rows, None] - at[None]
        distance = -distance if reverse else distance
        weights = torch.exp(decay * distance.masked_fill(distance < 0, torch.inf))
        weights = weights.masked_fill(distance < 0, 0)
        part = q[first : first + rows]
        results.append((part @ k.t() * weights @ v, part.abs() @ k.abs().t() * weights @ v.abs()))
    want, size = zip(*results, strict=True)
    return torch.cat(want), torch.cat(size)


def reference(i: Inputs, roles: tuple[str, str, str], reverse: bool) -> tuple:
    """What such a call gives for `roles` as q, k and v, in float64, and its bound."""
    q, k, v = (i[name] for name in roles)
    want = torch.empty(v.shape, dtype=torch.float64, device=v.device)
    bound = torch.empty_like(want)
    scale = q.shape[-1] ** -0.5
    for b in range(v.shape[0]):
        for h in range(v.shape[2]):
            heads = [t[b, :, h].double() for t in (q, k, v)]
            o, size = of_head(*heads, i["log_decay"][h].double(), reverse)
            want[b, :, h] = scale * o
            bound[b, :, h] = tolerance.linear_attention(
                scale * o, scale * size, q.dtype, q.shape[1]
            )
    return want, bound


def expected(i: Inputs, backward: bool) -> Expected:
    """o; or dq, dk and dv, which are recurrences too."""
    if not backward:
        return [reference(i, ("q", "k", "v"), False)]
    roles = ((("do", "v", "k"), False), (("v", "do", "q"), True), (("k", "q", "do"), True))
    return [reference(i, *each) for each in roles]


def ours(i: Inputs, backward: bool) -> Call:
    """`linear_attention` without gradients, or its backward alone."""
    import thunderkittens

    q, k, v = (i[name].detach().requires_grad_(backward) for name in "qkv")

    def run() -> torch.Tensor:
        return thunderkittens.linear_attention(q, k, v, log_decay=i["log_decay"])

    if not backward:
        return lambda: (run(),)
    o = run()
    return lambda: torch.autograd.grad(o, (q, k, v), i["do"], retain_graph=True)


CONTENDERS = {OURS: ours, "FLA": peers_linear_attention.fla}


def cases(quick: bool = False) -> Iterator[Case]:
    """Forward, then backward; `quick` takes the first shape."""
    for backward in (False, True):
        for shape in SHAPES[:1] if quick else SHAPES:
            tensors = 7 if backward else 4
            yield Case(
                op="linear_attention_backward" if backward else "linear_attention",
                shape=str(shape),
                dtype="bf16",
                work=tensors * shape.tensor_bytes(),
                unit="TB/s",
                inputs=partial(make_inputs, shape),
                expected=partial(expected, backward=backward),
                contenders={
                    name: partial(build, backward=backward) for name, build in CONTENDERS.items()
                },
                resident=tensors * shape.tensor_bytes(),
            )


def host_calls(gradient: bool) -> HostCalls:
    """For bench_host: op -> contender -> call."""
    import thunderkittens

    q, k, v = harness.host_tensors(3, (1, 128, 2, 64), gradient)
    return {"linear_attention": {OURS: lambda: thunderkittens.linear_attention(q, k, v)}}
