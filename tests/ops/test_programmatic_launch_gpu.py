"""Programmatic launches, between what torch does itself: copies, fills, products, other streams.

Each step needs all of what the step before wrote, most of it by other blocks, and buffers are used
again at once; the same steps with a pause after each give the bits that must come out.
"""

from collections.abc import Callable

import pytest
import torch

import thunderkittens

pytestmark = pytest.mark.gpu

ROUNDS = 60


def nothing() -> None:
    """No pause: kernels start early where they may."""


def steps(pause: Callable[[], None], rows: int, width: int) -> torch.Tensor:
    """ROUNDS rounds of our kernels and torch's, one feeding the next."""
    random = torch.Generator("cuda").manual_seed(rows)
    x, residual = (
        torch.randn(rows, width, device="cuda", generator=random).bfloat16() for _ in range(2)
    )
    weight = torch.randn(width, device="cuda", generator=random).bfloat16()
    rounds = []
    for i in range(ROUNDS):
        y, residual = thunderkittens.add_rms_norm(x, residual, weight)
        pause()
        y = thunderkittens.gelu(y.flip(0)) if i % 3 == 0 else thunderkittens.gelu(y)
        pause()
        x.fill_(float(i % 5))  # a memset or a fill, straight before a kernel that reads it
        pause()
        x = thunderkittens.swiglu(x, y)
        pause()
        residual.copy_(thunderkittens.layer_norm(residual + x.roll(1, 0), weight))
        pause()
        x.copy_(thunderkittens.rms_norm(x, weight))
        pause()
        rounds.append(x.float().sum(-1))
    return torch.stack(rounds)


@pytest.mark.parametrize("rows, width", [(1, 256), (128, 4096), (5000, 1024)])
def test_kernels_between_torch_operations(rows, width):
    want = steps(torch.cuda.synchronize, rows, width)
    for _ in range(3):
        assert torch.equal(steps(nothing, rows, width), want)


def test_two_streams_that_wait_for_each_other():
    x = torch.randn(2048, 2048, device="cuda").bfloat16()
    weight = torch.ones(2048, device="cuda", dtype=torch.bfloat16)
    streams = [torch.cuda.Stream() for _ in range(2)]

    def run(pause: Callable[[], None]) -> torch.Tensor:
        y = x.clone()
        for i in range(ROUNDS):
            mine, other = streams[i % 2], streams[1 - i % 2]
            mine.wait_stream(torch.cuda.current_stream() if i == 0 else other)
            with torch.cuda.stream(mine):
                y = thunderkittens.rms_norm(y.roll(1, 0), weight)
                y = thunderkittens.gelu(y).mul_(1.5)
                y.record_stream(other)
            pause()
        torch.cuda.current_stream().wait_stream(streams[1])
        return y

    want = run(torch.cuda.synchronize)
    for _ in range(3):
        assert torch.equal(run(nothing), want)


def test_a_graph_with_branches_and_fills():
    x = torch.randn(512, 4096, device="cuda").bfloat16()
    weight = torch.randn(4096, device="cuda").bfloat16()
    side = torch.cuda.Stream()

    def run(pause: Callable[[], None]) -> torch.Tensor:
        y, scratch = x, torch.zeros_like(x)
        for _ in range(10):
            scratch.zero_()
            pause()
            scratch.add_(y)
            pause()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                branch = thunderkittens.layer_norm(scratch, weight)
                pause()
            trunk = thunderkittens.rms_norm(scratch, weight)
            pause()
            torch.cuda.current_stream().wait_stream(side)
            y = thunderkittens.swiglu(trunk, branch)
            pause()
            y = thunderkittens.gelu(y.roll(1, 0))
            pause()
        return y

    want = run(torch.cuda.synchronize)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = run(nothing)
    for _ in range(20):
        got.zero_()
        graph.replay()
        assert torch.equal(got, want)


def test_backward_passes_overlap_with_their_reductions():
    x = torch.randn(4096, 1024, device="cuda").bfloat16().requires_grad_()
    weight = torch.randn(1024, device="cuda").bfloat16().requires_grad_()

    def run(pause: Callable[[], None]) -> list[torch.Tensor]:
        y = x
        for _ in range(12):
            y = thunderkittens.layer_norm(y, weight, weight)
            y = thunderkittens.gelu(y)
            # Called when the backward of what follows has just been launched.
            y.register_hook(lambda _: pause())
            pause()
        return list(torch.autograd.grad(y, (x, weight), torch.ones_like(y)))

    want = run(torch.cuda.synchronize)
    for _ in range(5):
        for mine, reference in zip(run(nothing), want, strict=True):
            assert torch.equal(mine, reference)
