"""Host time per call of the public functions, return included, with the GPU's queue empty.

Tiny tensors on the GPU: what is timed is checks, dispatch, allocation, autograd and the launch.
A host's clock may change from second to second (by a half where the record was made), and what else
the host does only adds. So it is woken first, all calls take turns, and the figure is the least of
a call's turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import configs
from benchmarks import harness
from benchmarks.harness import HostCalls, Result, Timer

# µs, what our functions promise where there is a kernel to launch.
LIMITS = {"no gradient": 7.0, "recording a gradient": 12.0}
WAKING_SECONDS = 0.2
TURNS = 9


def promised(op: str) -> bool:
    """Whether a limit stands for an op: it has a kernel; ATen's time is not ours to promise."""
    return any(op in kernel.ops and kernel.architectures for kernel in configs.KERNELS)


def calls(gradient: bool) -> HostCalls:
    """What each family's file has as `host_calls`, at sizes where the GPU is never the slower."""
    modules = [harness.load(family) for family in harness.families()]
    parts = [module.host_calls(gradient) for module in modules if hasattr(module, "host_calls")]
    return {op: contenders for part in parts for op, contenders in part.items()}


def wake(contenders: dict[str, Callable[[], Any]]) -> None:
    """Calls them for a while: clocks rise, caches fill, memory is reserved."""
    end = time.perf_counter() + WAKING_SECONDS
    while time.perf_counter() < end:
        for call in contenders.values():
            call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()


def in_turn(
    cases: dict[Any, dict[str, Callable[[], Any]]], timer: Timer
) -> dict[Any, dict[str, float]]:
    """Seconds of one call of each case's contenders: the least of its turns."""
    for contenders in cases.values():
        wake(contenders)
    turns = [
        {
            case: {name: timer.host_overhead(call) for name, call in contenders.items()}
            for case, contenders in cases.items()
        }
        for _ in range(TURNS)
    ]
    return {
        case: {name: min(turn[case][name] for turn in turns) for name in contenders}
        for case, contenders in cases.items()
    }


def measure(timer: Timer, quick: bool = False) -> Iterator[Result]:
    """One result per op and mode; `quick` changes nothing: this takes seconds."""
    del quick
    cases = {
        (op, mode): contenders
        for mode in LIMITS
        for op, contenders in calls(mode != "no gradient").items()
    }
    for (op, mode), seconds in in_turn(cases, timer).items():
        result = Result(op, "tiny", mode, "µs", seconds=seconds, method="host time, queue empty")
        if promised(op):
            result.yardstick, result.yardstick_rate = "limit", LIMITS[mode]
        yield result
