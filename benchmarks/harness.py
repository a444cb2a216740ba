"""What a benchmark is, and how one is measured.

A family's file declares `cases(quick)`. A case is one problem: an op, a shape, a dtype, the least
bytes it must move or the FLOPs it must do, and its contenders (ours first, then the peers). The
harness checks every contender against a float64 reference before it times any, and puts beside
each figure what the machine itself does in the same run: a copy of as many bytes, or the rate of a
large matrix product.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

OURS = "thunderkittens"
COMPILED = "ours, compiled"  # of a whole model: ours again, under torch.compile
# What is ours too, in another way, is named "ours, …".
GENERIC = "ours, generic"  # the kernel that every architecture has, where a specialised one runs
TIMES = {"µs": 1e6, "s": 1.0}  # units of results that are times: how many a second has
DEVICE = "cuda"  # the tests of the harness put "cpu" here
SMALL_SECONDS = 30e-6  # below this, launch gaps would hide the kernel: time replays of a CUDA graph
GRAPH_CALLS = 20
ROTATION_BYTES = 256 << 20  # rotating buffers, together well above any L2 cache

Inputs = dict[str, torch.Tensor]
Outputs = Sequence[torch.Tensor]
Call = Callable[[], Outputs]
HostCalls = dict[str, dict[str, Callable[[], Any]]]  # op -> contender -> call
Expected = Sequence[tuple[torch.Tensor, torch.Tensor]]  # (float64 reference, bound) per output


class MissingPeer(Exception):
    """A peer that cannot run here; the text says why."""


class WrongResult(Exception):
    """Our own result left its bound: nothing is timed."""


class Timer(Protocol):
    """The clocks the harness needs; `thunderkittens.testing.timing` has them."""

    def median_time(self, fn: Callable[[], Any]) -> float:
        """Seconds of one call on the GPU, the L2 cache flushed before each."""

    def graph_time(self, prepare: Callable[[], Sequence[Callable[[], Any]]]) -> float:
        """Seconds of one call when a CUDA graph replays what `prepare` returns in turn."""

    def sustained(self, fns: dict[str, Callable[[], Any]]) -> dict[str, float]:
        """Seconds of one call of each contender in turn, under lasting load."""

    def host_overhead(self, fn: Callable[[], Any]) -> float:
        """Seconds of host time of one call, return included, the GPU's queue empty."""


def is_ours(contender: str) -> bool:
    """Whether it is no peer."""
    return contender == OURS or contender.startswith("ours, ")


@dataclass(frozen=True)
class Case:
    """One problem and everyone who solves it.

    Args:
        op: The op's name, with `_backward` for its gradient.
        shape: For people: "16384 x 4096".
        dtype: "bf16", "fp16" or "fp32".
        work: The least bytes moved (unit "TB/s") or FLOPs done (unit "TFLOP/s").
        unit: "TB/s" or "TFLOP/s".
        inputs: seed -> named tensors on the GPU; called again for each rotating buffer.
        expected: inputs -> for each output its float64 reference and the largest error allowed.
        contenders: name -> (inputs -> call); `OURS` first. One that cannot run raises MissingPeer.
        resident: Bytes of one set of inputs and outputs, for the number of rotating buffers.
        in_graph: In use it runs in CUDA graphs, and so it does here, however long it takes.
    """

    op: str
    shape: str
    dtype: str
    work: int
    unit: str
    inputs: Callable[[int], Inputs]
    expected: Callable[[Inputs], Expected]
    contenders: dict[str, Callable[[Inputs], Call]]
    resident: int = 0
    in_graph: bool = False

    @property
    def name(self) -> str:
        """`layer_norm 16384 x 4096 bf16`."""
        return f"{self.op} {self.shape} {self.dtype}"


@dataclass
class Result:
    """What came of one case: seconds by contender, and why the others have none.

    Host cases (unit "µs") and waits (unit "s") have no work: their figure is the time itself.
    """

    op: str
    shape: str
    dtype: str
    unit: str
    work: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    yardstick: str = ""  # "copy", "matrix product", or for host cases a "limit" if we promise one
    yardstick_rate: float = 0.0  # in `unit`
    method: str = "median, L2 flushed"

    def figure(self, contender: str) -> float | None:
        """The contender's rate or time in `unit`, None if it was not timed."""
        seconds = self.seconds.get(contender)
        if seconds is None:
            return None
        if self.unit in TIMES:
            return seconds * TIMES[self.unit]
        return self.work / seconds / 1e12

    def ratio(self) -> float | None:
        """Best peer's time ÷ ours: above 1 we are faster. None without a timed peer."""
        peers = [s for name, s in self.seconds.items() if not is_ours(name)]
        return min(peers) / self.seconds[OURS] if peers and OURS in self.seconds else None

    def to_json(self) -> dict[str, Any]:
        """Plain data for the record."""
        return asdict(self)


@dataclass(frozen=True)
class Panel:
    """A part of the picture of memory-bound ops; a family's file has them as `PANELS`.

    Args:
        title: What stands above it.
        backward: Whether it shows the ops that end in `_backward`, or the others.
        column: Which of the picture's columns it stands in.
    """

    title: str
    backward: bool
    column: int


@dataclass(frozen=True)
class Headline:
    """A result that README's picture shows; a family's file has them as `HEADLINES`.

    Args:
        title: What stands above its bars.
        op: Of the result, and so are the others.
        shape: For people.
        dtype: "bf16".
    """

    title: str
    op: str
    shape: str
    dtype: str = "bf16"


def families() -> list[str]:
    """Every family that has a benchmark, by its file's name."""
    return sorted(path.stem[6:] for path in Path(__file__).parent.glob("bench_*.py"))


def load(family: str) -> Any:
    """The module that declares a family's cases."""
    return importlib.import_module(f"benchmarks.bench_{family}")


def host_tensors(count: int, shape: tuple[int, ...], gradient: bool) -> list[torch.Tensor]:
    """Tiny bf16 tensors, for calls in which the GPU is never slower than the host."""
    tensors = (torch.randn(*shape, device=DEVICE).bfloat16() for _ in range(count))
    return [tensor.requires_grad_(gradient) for tensor in tensors]


def check(case: Case, name: str, call: Call, expected: Expected) -> None:
    """Raises WrongResult unless each output of a contender is within its bound of the reference.

    A peer may be coarser than we promise to be (one rounding more), but not solve another problem.
    """
    for index, (got, (want, bound)) in enumerate(zip(call(), expected, strict=True)):
        if not is_ours(name):
            bound = 8 * bound + torch.finfo(got.dtype).eps * want.square().mean().sqrt()
        error = (got.double() - want).abs()
        if got.shape != want.shape or not bool((error <= bound).all()):
            worst = float((error / bound).nan_to_num(nan=float("inf")).max())
            raise WrongResult(
                f"{case.name}: output {index} of {name} is off by {worst:.3g} times its error "
                "bound (float64 reference)"
            )


def measure(case: Case, timer: Timer) -> Result:
    """Checks, then times, every contender of a case.

    A wrong result of ours raises; a peer that is absent, fails or is wrong is skipped, and why.
    """
    result = Result(case.op, case.shape, case.dtype, case.unit, case.work)
    inputs = case.inputs(0)
    expected = case.expected(inputs)
    calls: dict[str, Call] = {}
    for name, build in case.contenders.items():
        try:
            call = build(inputs)
            check(case, name, call, expected)
            calls[name] = call
        except Exception as problem:
            if name == OURS:
                raise
            result.skipped[name] = str(problem).strip().split("\n")[0] or type(problem).__name__
    del expected
    time_all(case, calls, result, timer)
    result.yardstick, result.yardstick_rate = yardstick(case, result, timer)
    return result


def time_all(case: Case, calls: dict[str, Call], result: Result, timer: Timer) -> None:
    """Fills `result.seconds`.

    Under lasting load where power limits the rate (FLOPs); by graph replay where our own call is
    short, or runs so in use; else one call at a time.
    """
    first = timer.median_time(calls[OURS])
    if case.unit == "TFLOP/s":
        result.method = "sustained load, in turn"
        result.seconds = timer.sustained(calls)
        return
    if first >= SMALL_SECONDS and not case.in_graph:
        result.seconds[OURS] = first
        for name, call in calls.items():
            if name != OURS:
                result.seconds[name] = timer.median_time(call)
        return
    result.method = f"CUDA graph of {GRAPH_CALLS} calls over rotating buffers"
    sets = min(GRAPH_CALLS, max(2, -(-ROTATION_BYTES // max(case.resident, case.work, 1))))
    rotation = [case.inputs(seed) for seed in range(sets)]
    for name in calls:
        build = case.contenders[name]
        try:
            result.seconds[name] = timer.graph_time(functools.partial(rotating, build, rotation))
        except Exception as problem:
            if name == OURS:
                raise
            result.skipped[name] = f"in a CUDA graph: {str(problem).strip().splitlines()[0]}"


def rotating(build: Callable[[Inputs], Call], rotation: list[Inputs]) -> list[Call]:
    """GRAPH_CALLS calls of a contender, of these inputs in turn."""
    built = [build(inputs) for inputs in rotation]
    return [built[i % len(built)] for i in range(GRAPH_CALLS)]


def yardstick(case: Case, result: Result, timer: Timer) -> tuple[str, float]:
    """What the machine does now: (name, rate in the case's unit)."""
    if case.unit == "TFLOP/s":
        return "matrix product", matrix_product_rate(timer)
    return "copy", copy_rate(case.work, result.method.startswith("CUDA graph"), timer)


def copy_rate(work: int, graph: bool, timer: Timer) -> float:
    """TB/s of a device-to-device copy that reads and writes `work` bytes in all."""
    sets = min(GRAPH_CALLS, max(2, -(-ROTATION_BYTES // work))) if graph else 1
    source = [torch.randn(work // 4, device=DEVICE).bfloat16() for _ in range(sets)]
    target = [torch.empty_like(s) for s in source]
    fns = [
        functools.partial(target[i % sets].copy_, source[i % sets])
        for i in range(GRAPH_CALLS if graph else 1)
    ]
    return work / (timer.graph_time(lambda: fns) if graph else timer.median_time(fns[0])) / 1e12


@functools.cache
def matrix_product_rate(timer: Timer, size: int = 8192) -> float:
    """TFLOP/s of torch's bf16 product of two random square matrices, the second transposed."""
    a, b = (torch.randn(size, size, device=DEVICE).bfloat16() for _ in range(2))
    out = torch.empty_like(a)
    seconds = timer.sustained({"product": lambda: torch.mm(a, b.t(), out=out)})["product"]
    return 2 * size**3 / seconds / 1e12
