"""Repeats a call, also beside other work on the GPU, and compares all bits with the first run's."""

import dataclasses
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
NOISE_ELEMENTS = 2**27  # in 16 bits: five times the second-level cache of an H200
NOISE_WIDTH = 4096
NOISE_SECONDS = 150e-6  # what a call of either noise takes, roughly
MOST_NOISE = 16  # calls of it beside one call


class Problem(Protocol):
    """What is repeated: cases.Stress, for one."""

    def make(self, device: str) -> Sequence[Tensor | None]: ...
    def run(self, inputs: Sequence[Tensor | None]) -> Sequence[Tensor | None]: ...
    def check(self, inputs: Sequence[Tensor | None], results: Sequence[Tensor | None]) -> None: ...


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a problem.

    Attributes:
        name: The problem's.
        alone: How many runs, with nothing beside them.
        beside: How many with noise on another stream.
        alone_differ: How many of those had other bits than the first run.
        beside_differ: The same of these.
        wrong: What is wrong with the first run's values; "" if nothing is.
        seconds: All of it took.
    """

    name: str
    alone: int
    beside: int
    alone_differ: int
    beside_differ: int
    wrong: str
    seconds: float

    @property
    def good(self) -> bool:
        """Whether all runs gave the same bits, and the right ones."""
        return not (self.alone_differ or self.beside_differ or self.wrong)

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.alone} repeats alone, {self.alone_differ} differ; "
            f"{self.beside} beside noise, {self.beside_differ} differ; "
            f"values {f'wrong ({self.wrong})' if self.wrong else 'right'}; {self.seconds:.1f} s"
        )


class Noise:
    """Work on a stream of its own: by turns what memory limits, and what the tensor cores do."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.source = torch.ones(NOISE_ELEMENTS, dtype=torch.bfloat16, device="cuda")
        self.copy = torch.empty_like(self.source)
        size = (NOISE_WIDTH, NOISE_WIDTH)
        self.factor = torch.randn(size, device="cuda").bfloat16()
        self.product = torch.empty_like(self.factor)
        self.turn = 0
        torch.cuda.synchronize()  # what the other stream uses is there
        for _ in range(2):
            self.make(1)  # what is slow once
        torch.cuda.synchronize()

    def make(self, calls: int) -> None:
        """Starts some, which nothing waits for."""
        self.turn += 1
        with torch.cuda.stream(self.stream):
            for _ in range(calls):
                if self.turn % 2 == 0:
                    self.copy.copy_(self.source)
                else:
                    torch.mm(self.factor, self.factor, out=self.product)


def nothing() -> None:
    """What is done before a run that is alone."""


def differs(got: Sequence[Tensor | None], first: Sequence[Tensor | None]) -> Tensor:
    """Whether a bit differs, as a bool on the device: nothing waits for it."""
    given = [(a, b) for a, b in zip(got, first, strict=True) if b is not None]
    bits = [[t.view(BITS[t.element_size()]) for t in pair] for pair in given]
    return torch.stack([(a != b).any() for a, b in bits]).any()


def count_differing(
    run: Callable[[], Sequence[Tensor | None]],
    first: Sequence[Tensor | None],
    repeats: int,
    before: Callable[[], None],
) -> int:
    """Runs `repeats` times, and returns how often a bit differs from the first results.

    Args:
        run: The call.
        first: What it gave first.
        repeats: How often.
        before: Called before each.
    """
    device = next(t.device for t in first if t is not None)
    count = torch.zeros((), dtype=torch.int64, device=device)
    for _ in range(repeats):
        before()
        count += differs(run(), first)
    return int(count)


def stress(
    problem: Problem, repeats: int, seconds: float, device: str = "cuda", least: int = 20
) -> Outcome:
    """Repeats a problem alone and beside noise, and checks the first run's values.

    Args:
        problem: What to repeat.
        repeats: How often, alone and again beside noise.
        seconds: How long the repeats may take; what takes longer is repeated less.
        device: "cpu" has no noise.
        least: Repeats there are in any case.
    """
    torch.manual_seed(zlib.crc32(str(problem).encode()))
    start = time.monotonic()
    inputs = problem.make(device)
    first = [None if t is None else t.clone() for t in problem.run(inputs)]
    try:
        problem.check(inputs, first)
        wrong = ""
    except AssertionError as error:
        wrong = str(error).split("\n")[0] or "no reason given"

    few = min(least, repeats)

    def timed(count: int, before: Callable[[], None]) -> tuple[int, float]:
        begun = time.monotonic()
        differing = count_differing(lambda: problem.run(inputs), first, count, before)
        return differing, (time.monotonic() - begun) / count

    def series(before: Callable[[], None]) -> tuple[int, int, float]:
        differing, each = timed(few, before)
        more = min(repeats, int(seconds / 2 / each)) - few
        if more > 0:
            differing += timed(more, before)[0]
        return few + max(0, more), differing, each

    timed(2, nothing)  # what is slow once
    alone, alone_differ, each = series(nothing)
    beside, beside_differ = 0, 0
    if device != "cpu":
        noise = Noise()
        calls = min(MOST_NOISE, 1 + int(each / NOISE_SECONDS))
        beside, beside_differ, _ = series(lambda: noise.make(calls))
    took = time.monotonic() - start
    return Outcome(str(problem), alone, beside, alone_differ, beside_differ, wrong, took)
