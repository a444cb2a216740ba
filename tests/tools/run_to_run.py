"""Whether a call gives the same bits on every run, on a GPU that does other work beside it."""

from collections.abc import Callable, Sequence

import torch

from thunderkittens.testing import memory


def check_same_bits(run: Callable[[], Sequence[torch.Tensor | None]], repeats: int = 20) -> None:
    """Asserts that the tensors that `run` returns have the bits of its first call every time."""
    want = run()
    noise, other = torch.randn(2048, 2048, device="cuda"), torch.cuda.Stream()
    for _ in range(repeats):
        with torch.cuda.stream(other):
            noise @ noise
        for got, first in zip(run(), want, strict=True):
            assert got is first is None or memory.bits_equal(got, first)
    torch.cuda.synchronize()
