"""Mamba-2's state-space dual: memory-bound, so every figure is minimum bytes / time.

Minimum bytes: forward, read x, dt, B and C and write y; backward, read those and dy, write dx, ddt,
dB and dC. Each point has 32768 tokens of 32 heads, from many streams of chunks to few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks import harness, peers_mamba2
from benchmarks.harness import OURS, Call, Case, Expected, HostCalls, Inputs, Panel
from thunderkittens.testing import tolerance

PANELS = (Panel("mamba2", False, 0), Panel("mamba2, backward", True, 1))
GIVEN = ("x", "dt", "A", "B", "C", "D", "dt_bias")
DIFFERENTIATED = ("x", "dt", "B", "C")
CHUNK = 64


@dataclass(frozen=True)
class Shape:
    """Sizes of one problem, in bf16."""

    batch: int
    seq: int
    heads: int
    head_width: int
    groups: int
    state_width: int

    def __str__(self) -> str:
        heads = f"H{self.heads} P{self.head_width} N{self.state_width} G{self.groups}"
        return f"B{self.batch} S{self.seq} {heads}"

    def input_bytes(self) -> int:
        """Of x, dt, B and C, and of their gradients."""
        of_token = self.heads * (self.head_width + 1) + 2 * self.groups * self.state_width
        return 2 * self.batch * self.seq * of_token

    def output_bytes(self) -> int:
        """Of y, and of its gradient."""
        return 2 * self.batch * self.seq * self.heads * self.head_width

    def minimum_bytes(self, backward: bool) -> int:
        """What has to be read and written."""
        return (2 if backward else 1) * self.input_bytes() + self.output_bytes()


SHAPES = tuple(Shape(batch, 32768 // batch, 32, 64, 1, 64) for batch in (32, 8, 2))


def make_inputs(shape: Shape, seed: int) -> Inputs:
    """Normally distributed x, B, C and dy; steps and decays as Mamba-2 begins with."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)

    def normal(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, device=harness.DEVICE, generator=random)

    tokens, heads = (shape.batch, shape.seq), shape.heads
    wide, narrow = (heads, shape.head_width), (shape.groups, shape.state_width)
    inputs = {name: normal(*tokens, *wide).to(torch.bfloat16) for name in ("x", "dy")}
    inputs |= {name: normal(*tokens, *narrow).to(torch.bfloat16) for name in "BC"}
    inputs["dt"] = normal(*tokens, heads).to(torch.bfloat16)
    at = torch.linspace(0, 1, heads, device=harness.DEVICE)
    inputs["A"] = -(1 + 15 * at)
    inputs["dt_bias"] = torch.log(torch.expm1(0.001 * 100.0**at))  # steps of 0.001 to 0.1
    inputs["D"] = torch.ones(heads, device=harness.DEVICE)
    return inputs


def chunked(x, decay, steps, B, C) -> torch.Tensor:
    """y without D, [b, s, h, p], of chunks that fill the sequence; B, C [b, s, g, n]."""
    batch, seq, heads, width = x.shape
    chunks = seq // CHUNK

    def of_chunks(t: torch.Tensor) -> torch.Tensor:  # [b, h, chunks, CHUNK, …]
        t = t.repeat_interleave(heads // t.shape[2], 2).transpose(1, 2)
        return t.reshape(batch, heads, chunks, CHUNK, *t.shape[3:])

    x, B, C = of_chunks(x * steps.unsqueeze(-1)), of_chunks(B), of_chunks(C)
    sums = of_chunks(decay).cumsum(-1)
    hidden = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=x.device).triu(1)
    exponents = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).masked_fill(hidden, -torch.inf)
    y = (C @ B.mT * exponents.exp()) @ x
    added = (x * (sums[..., -1:] - sums).exp().unsqueeze(-1)).mT @ B
    state, before = torch.zeros_like(added[:, :, 0]), []
    for i in range(chunks):
        before.append(state)
        state = state * sums[:, :, i, -1, None, None].exp() + added[:, :, i]
    y = y + (C * sums.exp().unsqueeze(-1)) @ torch.stack(before, 2).mT
    return y.reshape(batch, heads, seq, width).transpose(1, 2)


def expected(i: Inputs, backward: bool) -> Expected:
    """y, or the gradients of DIFFERENTIATED, in float64, a batch at a time; and their bounds."""
    parts: list[list[tuple[torch.Tensor, torch.Tensor]]] = []
    for b in range(i["x"].shape[0]):
        part = {n: t[b : b + 1] if n in ("x", "dt", "B", "C", "dy") else t for n, t in i.items()}
        exact = {n: t.double() for n, t in part.items()}
        parts.append(of_batch(exact, backward))
    results = []
    for pairs in zip(*parts, strict=True):
        want, bound = (torch.cat(each) for each in zip(*pairs, strict=True))
        results.append((want, bound))
    return results


def of_batch(i: dict[str, torch.Tensor], backward: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """`expected` of exact inputs."""
    given = {n: i[n].requires_grad_(backward) for n in DIFFERENTIATED}
    steps = F.softplus(given["dt"] + i["dt_bias"])
    y = chunked(given["x"], steps * i["A"], steps, given["B"], given["C"])
    y = y + i["D"][:, None] * given["x"]
    absolute = {n: given[n].detach().abs().requires_grad_(backward) for n in ("x", "B", "C")}
    weights = steps.detach().requires_grad_(backward)
    size = chunked(absolute["x"], weights.detach() * i["A"], weights, absolute["B"], absolute["C"])
    size = size + i["D"][:, None] * absolute["x"]
    length = y.shape[1]

    def bounded(want: torch.Tensor, size: torch.Tensor, terms: int) -> tuple:
        return want.detach(), tolerance.linear_attention(want, size, torch.bfloat16, terms).detach()

    if not backward:
        return [bounded(y, size, length)]
    want = torch.autograd.grad(y, list(given.values()), i["dy"])
    sizes = torch.autograd.grad(size, [*absolute.values(), weights], i["dy"].abs())
    dx, dB, dC, d_weights = sizes
    # What passes a token is a difference of sums over all tokens.
    passing = 2 * (weights * d_weights).sum(1, keepdim=True)
    dt = d_weights + passing * i["A"].abs()
    terms = length * y.shape[2]  # of heads that share a group
    ordered = zip(want, (dx, dt, dB, dC), (length, length, terms, terms), strict=True)
    return [bounded(*each) for each in ordered]


def ours(i: Inputs, backward: bool) -> Call:
    """`mamba2` without gradients, or its backward alone."""
    import thunderkittens

    given = {n: i[n].detach().requires_grad_(backward and n in DIFFERENTIATED) for n in GIVEN}

    def run() -> torch.Tensor:
        return thunderkittens.mamba2(**given, dt_softplus=True)

    if not backward:
        return lambda: (run(),)
    y, leaves = run(), [given[n] for n in DIFFERENTIATED]
    return lambda: torch.autograd.grad(y, leaves, i["dy"], retain_graph=True)


CONTENDERS = {OURS: ours, "mamba_ssm": peers_mamba2.mamba_ssm}


def cases(quick: bool = False) -> Iterator[Case]:
    """Forward, then backward; `quick` takes the first shape."""
    for backward in (False, True):
        for shape in SHAPES[:1] if quick else SHAPES:
            work = shape.minimum_bytes(backward)
            yield Case(
                op="mamba2_backward" if backward else "mamba2",
                shape=str(shape),
                dtype="bf16",
                work=work,
                unit="TB/s",
                inputs=partial(make_inputs, shape),
                expected=partial(expected, backward=backward),
                contenders={
                    name: partial(build, backward=backward) for name, build in CONTENDERS.items()
                },
                resident=work,
            )


def host_calls(gradient: bool) -> HostCalls:
    """For bench_host: op -> contender -> call."""
    import thunderkittens

    x, B, C = harness.host_tensors(3, (1, 128, 1, 64), gradient)
    (dt,) = harness.host_tensors(1, (1, 128, 1), gradient)
    A = -torch.ones(1, device=x.device)
    return {"mamba2": {OURS: lambda: thunderkittens.mamba2(x, dt, A, B, C)}}
