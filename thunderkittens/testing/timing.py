"""Clocks. All return seconds per call.

A GPU kernel's time repeats within about 2 %. What does not: bursts (a cold GPU draws more power and
is faster), data of zeros (faster), inputs that still lie in the L2 cache, and memory that has just
been freed, which the driver clears meanwhile. So: random data, the cache flushed or the buffers
rotated, nothing freed shortly before, and two contenders compared only in turn, in one run.
"""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

FLUSH_BYTES = 256 << 20  # well above any L2 cache
CYCLES_PER_SECOND = 4e9  # no GPU's clock is as fast
HEAD_ROOM = 20e-6  # seconds
CALLS_OF_A_BATCH = 20  # host_overhead: few enough that the GPU's queue never fills
CLEARING_RATE = 0.2e12  # bytes a second; an H200's driver: 0.4e12 (benchmarks/attention_decode.md)


def free_cached_memory() -> None:
    """Frees what torch keeps for later, and waits until the driver has cleared it.

    Until then, on an H200 for 2.5 ms a gigabyte, a kernel that waits for memory takes up to 1.15
    times as long. `torch.cuda.graph` frees the same, so this comes before a capture that is timed.
    """
    gc.collect()
    torch.cuda.synchronize()
    kept = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    time.sleep((kept - torch.cuda.memory_reserved()) / CLEARING_RATE)


def median_time(fn: Callable[[], Any], repeats: int = 50) -> float:
    """GPU time of one call, the L2 cache flushed before each: the median of `repeats`.

    The host's time is no part of it, however slow it is: between flush and call the GPU waits until
    the whole call is in its queue. (What a call waits for itself, as one that synchronises does, is
    its own time and counts.)

    Raises:
        RuntimeError: There is no GPU.
    """
    _need_gpu("median_time")
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    wait = round((2 * _longest_host_time(fn) + HEAD_ROOM) * CYCLES_PER_SECOND)
    starts = [torch.cuda.Event(enable_timing=True) for _ in range(repeats)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(repeats)]
    for start, end in zip(starts, ends, strict=True):
        flush.zero_()
        torch.cuda._sleep(wait)  # touches no memory: the cache stays flushed
        start.record()
        fn()
        end.record()
    torch.cuda.synchronize()
    times = [start.elapsed_time(end) for start, end in zip(starts, ends, strict=True)]
    return float(statistics.median(times)) / 1e3


def _longest_host_time(fn: Callable[[], Any], calls: int = 5) -> float:
    """Host time of a call, the GPU idle before it: the longest, after as many to warm up."""
    times = []
    for _ in range(2 * calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return max(times[calls:])


def graph_time(prepare: Callable[[], Sequence[Callable[[], Any]]], repeats: int = 20) -> float:
    """GPU time of one call when a CUDA graph replays several in turn: the median of `repeats`.

    For kernels under 30 µs, which launches would hide, and for those that run in a graph. What lies
    in the L2 cache before a replay is none of the calls' data. `prepare` returns the calls; give
    each its own buffers, together larger than the L2 cache. Forward passes of which the calls are
    the backward passes belong in there: autograd goes back to their stream, which has to be the
    captured one.

    Raises:
        RuntimeError: There is no GPU.
    """
    _need_gpu("graph_time")
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        fns = prepare()
        for fn in fns:
            fn()
    torch.cuda.current_stream().wait_stream(side)
    free_cached_memory()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        kept = [fn() for fn in fns]  # results stay alive, so that none reuses another's memory
    graph.replay()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # Lines that somebody read with ordinary priority stay beside all that calls mark as evicted
        # first, and a part of their data would be found there, replay for replay. (Reads, not
        # writes: those would be written back on the calls' account.)
        flush.sum()
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    del kept
    return float(statistics.median(times)) / 1e3 / len(fns)


def sustained(
    fns: dict[str, Callable[[], Any]], warmup: float = 2.0, window: float = 0.5, rounds: int = 5
) -> dict[str, float]:
    """GPU time of one call of each contender under lasting load: the median over its windows.

    Args:
        fns: Contender to call.
        warmup: Seconds of load before the first window.
        window: Seconds of one contender before the next has its turn.
        rounds: Windows of each.

    Raises:
        RuntimeError: There is no GPU.
    """
    _need_gpu("sustained")
    calls = {name: max(1, round(window / median_time(fn, 5))) for name, fn in fns.items()}
    end_of_warmup = time.perf_counter() + warmup
    while time.perf_counter() < end_of_warmup:
        for fn in fns.values():
            fn()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {name: [] for name in fns}
    for _ in range(rounds):
        for name, fn in fns.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(calls[name]):
                fn()
            end.record()
            torch.cuda.synchronize()
            times[name].append(start.elapsed_time(end) / calls[name])
    return {name: statistics.median(values) / 1e3 for name, values in times.items()}


def host_overhead(fn: Callable[[], Any], batches: int = 100) -> float:
    """Host time of one call, return included, the GPU's queue never full: median of the batches.

    Works without a GPU too, where it times the whole call.
    """
    on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    times = []
    for batch in range(batches + 5):
        start = time.perf_counter()
        for _ in range(CALLS_OF_A_BATCH):
            fn()
        if batch >= 5:  # the first ones warm up
            times.append(time.perf_counter() - start)
        if on_gpu:
            torch.cuda.synchronize()
    return statistics.median(times) / CALLS_OF_A_BATCH


def _need_gpu(name: str) -> None:
    if not torch.cuda.is_available():
        raise RuntimeError(f"{name}: needs a GPU, and torch finds none")
