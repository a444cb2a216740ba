"""Based's linear attention, normalised: every figure is minimum bytes / time.

Minimum bytes: forward, read q, k and v and write o; backward, read those and do, write dq, dk and
dv. Each point has 65536 tokens and 16 heads of 16 features and 64 values, from many streams of
chunks to few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks import harness, peers_based_attention
from benchmarks.harness import OURS, Call, Case, Expected, HostCalls, Inputs, Panel
from thunderkittens.testing import tolerance

PANELS = (Panel("based", False, 0), Panel("based, backward", True, 1))
FEATURES, VALUES = 16, 64
EARLY = 64  # tokens


@dataclass(frozen=True)
class Shape:
    """Sizes of one problem, in bf16."""

    batch: int
    seq: int
    heads: int

    def __str__(self) -> str:
        return f"B{self.batch} S{self.seq} H{self.heads} d{FEATURES} dv{VALUES}"

    def row_bytes(self, width: int) -> int:
        """Of a tensor of that width."""
        return 2 * self.batch * self.seq * self.heads * width

    def work(self, backward: bool) -> int:
        """q, k, v and o; or also do, and with the gradients in place of o."""
        keys, values = (4, 3) if backward else (2, 2)
        return keys * self.row_bytes(FEATURES) + values * self.row_bytes(VALUES)


SHAPES = tuple(Shape(batch, 65536 // batch, 16) for batch in (64, 16, 4))


def make_inputs(shape: Shape, seed: int) -> Inputs:
    """q, k, v and do, normally distributed."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)
    sizes = (shape.batch, shape.seq, shape.heads)
    return {
        name: torch.randn(*sizes, width, device=harness.DEVICE, generator=random).bfloat16()
        for name, width in (("q", FEATURES), ("k", FEATURES), ("v", VALUES), ("do", VALUES))
    }


def of_head(q, k, v) -> tuple[torch.Tensor, torch.Tensor]:
    """One head's o in float64 and its sum of absolute values, [S, V], by blocks of rows."""
    seq, rows, scale = q.shape[0], 1024, q.shape[-1] ** -0.5
    results = []
    for first in range(0, seq, rows):
        part, last = q[first : first + rows], first + rows
        s = scale * (part @ k[:last].t())
        size = scale * (part.abs() @ k[:last].abs().t())
        weights, sizes = ((1 + x + x * x / 2).tril(first) for x in (s, size))
        total = weights.sum(-1, keepdim=True)
        results.append((weights @ v[:last] / total, sizes @ v[:last].abs() / total))
    want, size = zip(*results, strict=True)
    return torch.cat(want), torch.cat(size)


def expected_o(i: Inputs) -> Expected:
    """o in float64, and its bound."""
    q, k, v = i["q"], i["k"], i["v"]
    want = torch.empty(v.shape, dtype=torch.float64, device=v.device)
    bound = torch.empty_like(want)
    for b in range(v.shape[0]):
        for h in range(v.shape[2]):
            o, size = of_head(*(t[b, :, h].double() for t in (q, k, v)))
            want[b, :, h] = o
            bound[b, :, h] = tolerance.based_attention(o, size, q.dtype, q.shape[1])
    return [(want, bound)]


def expected_gradients(i: Inputs) -> Expected:
    """dq, dk and dv by torch in float64, of one head at a time, and their bounds."""
    import thunderkittens

    based = thunderkittens.based_attention
    tensors = [i[name] for name in ("q", "k", "v")]
    wants = [torch.empty(t.shape, dtype=torch.float64, device=t.device) for t in tensors]
    sizes = [torch.empty_like(want) for want in wants]
    for h in range(tensors[-1].shape[2]):
        leaves = [t[:, :, h : h + 1].double().requires_grad_() for t in tensors]
        q, k, v = leaves
        d_o = i["do"][:, :, h : h + 1].double()
        o = based(q, k, v)
        # A score's gradient is do · (v − o) over the denominator: its size that of both terms.
        ones = torch.ones_like(v[..., :1])
        total = based(q, k, ones, normalize=False).detach()
        absolute = [t.detach().abs().requires_grad_() for t in leaves]
        sums = based(*absolute, normalize=False)
        of_total = based(*absolute[:2], ones, normalize=False)
        through_o = (d_o * o.detach()).abs().sum(-1, keepdim=True)
        size = (d_o.abs() / total * sums + through_o / total * of_total).sum()
        for kept, part in (
            (wants, torch.autograd.grad(o, leaves, d_o)),
            (sizes, torch.autograd.grad(size, absolute)),
        ):
            for of_all, of_one in zip(kept, part, strict=True):
                of_all[:, :, h : h + 1] = of_one
    return [gradient_bound(want, size) for want, size in zip(wants, sizes, strict=True)]


def gradient_bound(want: torch.Tensor, size: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`want`, and its bound: of later tokens 3 % of all's rms and of their own, about 20 roundings.

    The first tokens' gradients have small denominators and differences of equal terms: their bound
    is that of the sums of absolute values, far from what errors are.
    """
    bound = tolerance.based_attention(want, size, torch.bfloat16, want.shape[1])
    later = want[:, EARLY:]
    of_token = later.square().mean(3, keepdim=True)
    of_all = of_token.mean(1, keepdim=True)
    bound[:, EARLY:] = 0.03 * (of_all.sqrt() + of_token.sqrt()) + 0.02 * later.abs()
    return want, bound


def expected(i: Inputs, backward: bool) -> Expected:
    """o; or dq, dk and dv."""
    return expected_gradients(i) if backward else expected_o(i)


def ours(i: Inputs, backward: bool) -> Call:
    """`based_attention` without gradients, or its backward alone."""
    import thunderkittens

    q, k, v = (i[name].detach().requires_grad_(backward) for name in "qkv")

    def run() -> torch.Tensor:
        return thunderkittens.based_attention(q, k, v)

    if not backward:
        return lambda: (run(),)
    o = run()
    return lambda: torch.autograd.grad(o, (q, k, v), i["do"], retain_graph=True)


CONTENDERS = {OURS: ours, "FLA": peers_based_attention.fla}


def cases(quick: bool = False) -> Iterator[Case]:
    """Forward, then backward; `quick` takes the first shape."""
    for backward in (False, True):
        for shape in SHAPES[:1] if quick else SHAPES:
            yield Case(
                op="based_attention_backward" if backward else "based_attention",
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

    q, k = harness.host_tensors(2, (1, 128, 2, FEATURES), gradient)
    (v,) = harness.host_tensors(1, (1, 128, 2, VALUES), gradient)
    return {"based_attention": {OURS: lambda: thunderkittens.based_attention(q, k, v)}}
