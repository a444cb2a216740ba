"""Hedgehog attention, bf16: memory-bound if it were perfect, so figures are minimum bytes / time.

Minimum bytes: forward, read q, k and v and write y; backward, read those and dy, write dq, dk and
dv. Each point has 16384 tokens and 16 heads of 128, from many streams of blocks to few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks import harness
from benchmarks.harness import OURS, Call, Case, Expected, HostCalls, Inputs, Panel
from thunderkittens.testing import tolerance

PANELS = (Panel("hedgehog", False, 0), Panel("hedgehog, backward", True, 1))
WINDOW = 64
INPUTS = ("q", "k", "v", "q_map", "k_map", "alpha", "beta")


@dataclass(frozen=True)
class Shape:
    """Sizes of one problem, in bf16; heads are mapped to half as many columns."""

    batch: int
    seq: int
    heads: int
    head_dim: int

    def __str__(self) -> str:
        return f"B{self.batch} S{self.seq} H{self.heads} D{self.head_dim}"

    def tensor_bytes(self) -> int:
        """Of one of q, k, v, y and their gradients."""
        return 2 * self.batch * self.seq * self.heads * self.head_dim

    def work(self, backward: bool) -> int:
        """The minimum bytes."""
        return (7 if backward else 4) * self.tensor_bytes()


SHAPES = tuple(Shape(batch, 16384 // batch, 16, 128) for batch in (16, 4, 1))


def make_inputs(shape: Shape, seed: int) -> Inputs:
    """q, k, v and dy, normally distributed; maps that keep their size; both weights a half."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)

    def normal(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, device=harness.DEVICE, generator=random)

    sizes = (shape.batch, shape.seq, shape.heads, shape.head_dim)
    inputs = {name: normal(*sizes).to(torch.bfloat16) for name in ("q", "k", "v", "dy")}
    for name in ("q_map", "k_map"):
        weights = normal(shape.heads, shape.head_dim, shape.head_dim // 2)
        inputs[name] = (weights * shape.head_dim**-0.5).to(torch.bfloat16)
    for name in ("alpha", "beta"):
        inputs[name] = torch.full((shape.heads,), 0.5, device=harness.DEVICE)
    return inputs


def of_head(i: Inputs, b: int, h: int, rows: int = 1024) -> tuple[torch.Tensor, torch.Tensor]:
    """One head's output in float64 and its sum of absolute values, [S, D], by blocks of rows."""
    q, k, v = (i[name][b, :, h].double() for name in "qkv")

    def features(x: torch.Tensor, name: str) -> torch.Tensor:
        logits = x @ i[name][h].double()
        return torch.cat([logits.softmax(-1), (-logits).softmax(-1)], -1)

    of_q, of_k = features(q, "q_map"), features(k, "k_map")
    at = torch.arange(q.shape[0], device=q.device)
    outputs, sizes = [], []
    for first in range(0, q.shape[0], rows):
        part = slice(first, first + rows)
        begin = (at[part, None] // WINDOW - 1) * WINDOW
        window = (at >= begin) & (at <= at[part, None])
        scores = (q[part] @ k.t() * q.shape[-1] ** -0.5).masked_fill(~window, -torch.inf)
        weights = i["beta"][h] * (scores - scores.amax(-1, keepdim=True)).exp()
        weights = weights + i["alpha"][h] * (of_q[part] @ of_k.t()) * (at < begin)
        weights = weights / weights.sum(-1, keepdim=True)
        outputs.append(weights @ v)
        sizes.append(weights @ v.abs())
    return torch.cat(outputs), torch.cat(sizes)


def expected_y(i: Inputs) -> Expected:
    """y in float64."""
    want = torch.empty(i["q"].shape, dtype=torch.float64, device=i["q"].device)
    bound = torch.empty_like(want)
    batch, seq, heads, width = want.shape
    rough = 6.0 * 6.0 * width**0.5
    for b in range(batch):
        for h in range(heads):
            y, size = of_head(i, b, h)
            want[b, :, h] = y
            bound[b, :, h] = tolerance.hedgehog_attention(
                y, size + y.abs(), i["q"].dtype, seq, rough
            )
    return [(want, bound)]


def expected_gradients(i: Inputs) -> Expected:
    """All of them by torch in float64, a head at a time; the bound is 2 % of their rms."""
    import thunderkittens

    inputs = [i[name].double() for name in INPUTS]
    wants = [torch.empty_like(t) for t in inputs]
    for h in range(inputs[0].shape[2]):

        def of_head(t: torch.Tensor, h: int = h) -> torch.Tensor:
            return t[:, :, h : h + 1] if t.dim() == 4 else t[h : h + 1]

        leaves = [of_head(t).clone().requires_grad_() for t in inputs]
        *tensors, alpha, beta = leaves
        y = thunderkittens.hedgehog_attention(*tensors, alpha=alpha, beta=beta)
        found = torch.autograd.grad(y, leaves, of_head(i["dy"]).double())
        for want, part in zip(wants, found, strict=True):
            of_head(want).copy_(part)
    # Each token's rms, and all tokens': the first ones', whose denominators are small, are larger.
    # Of a sum that cancels, as weights' where no query has a state, sums of all dy are left.
    least = 1e-5 * i["dy"].double().norm()
    bounds = []
    for want in wants:
        squares = want.square()
        row, every = squares.mean(-1, keepdim=True).sqrt(), squares.mean().sqrt()
        bounds.append(0.02 * (row + every + want.abs()) + least)
    return list(zip(wants, bounds, strict=True))


def expected(i: Inputs, backward: bool) -> Expected:
    """y; or the gradients of all inputs."""
    return expected_gradients(i) if backward else expected_y(i)


def ours(i: Inputs, backward: bool) -> Call:
    """`hedgehog_attention` without gradients, or its backward alone."""
    import thunderkittens

    leaves = [i[name].detach().requires_grad_(backward) for name in INPUTS]
    *tensors, alpha, beta = leaves

    def run() -> torch.Tensor:
        return thunderkittens.hedgehog_attention(*tensors, alpha=alpha, beta=beta)

    if not backward:
        return lambda: (run(),)
    y = run()
    return lambda: torch.autograd.grad(y, leaves, i["dy"], retain_graph=True)


CONTENDERS = {OURS: ours}


def cases(quick: bool = False) -> Iterator[Case]:
    """Forward, then backward; `quick` takes the first shape."""
    for backward in (False, True):
        for shape in SHAPES[:1] if quick else SHAPES:
            yield Case(
                op="hedgehog_attention_backward" if backward else "hedgehog_attention",
                shape=str(shape),
                dtype="bf16",
                work=shape.work(backward),
                unit="TB/s",
                inputs=partial(make_inputs, shape),
                expected=partial(expected, backward=backward),
                contenders={
                    name: partial(build, backward=backward) for name, build in CONTENDERS.items()
                },
                resident=shape.work(backward),
            )


def host_calls(gradient: bool) -> HostCalls:
    """For bench_host: op -> contender -> call."""
    import thunderkittens

    q, k, v = harness.host_tensors(3, (1, 128, 2, 128), gradient)
    maps = [torch.randn(2, 128, 64, device=q.device, dtype=q.dtype) for _ in "qk"]
    weights = {name: torch.full((2,), 0.5, device=q.device) for name in ("alpha", "beta")}
    return {
        "hedgehog_attention": {
            OURS: lambda: thunderkittens.hedgehog_attention(q, k, v, *maps, **weights)
        }
    }
