"""Clocks: without a GPU they say so; with one they are between its cycles and the host's."""

import contextlib
import functools
import itertools
import time

import pytest
import torch

from thunderkittens.testing import timing

needs_none = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@needs_none
@pytest.mark.parametrize("name", ["median_time", "graph_time", "sustained"])
def test_without_a_gpu(name):
    with pytest.raises(RuntimeError, match=f"{name}: needs a GPU, and torch finds none"):
        getattr(timing, name)([])


def test_host_overhead_is_seconds_per_call():
    calls, start = 0, time.perf_counter()

    def call():
        nonlocal calls
        calls += 1
        time.sleep(0.001)

    seconds = timing.host_overhead(call, batches=4)
    elapsed = time.perf_counter() - start
    # However busy the host is: at least half of the batches are no shorter than their median.
    assert calls == (4 + 5) * 20
    assert 0.001 <= seconds <= elapsed / (4 * 20 / 2)


class Gpu:
    """A GPU with one queue, and the clock of its host, in seconds."""

    def __init__(self, monkeypatch):
        self.now = self.free = 0.0  # the host's clock, and when all that is queued is done
        self.captured = None  # seconds of launches that a graph has captured
        self.reads = 0  # of all that replaces what is in the L2 cache
        self.reserved = self.cached = 0  # bytes that torch has, and of those the ones not in use
        self.cleared = 0.0  # when the driver has cleared what was freed; until then all is slower
        gpu = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at = max(gpu.now, gpu.free)

            def elapsed_time(self, end):
                return (end.at - self.at) * 1e3

        class Flush:
            def zero_(self):
                gpu.launch(80e-6)

            def sum(self):
                gpu.reads += 1
                gpu.launch(60e-6)

        class Stream:
            def wait_stream(self, other):
                pass

        class Graph:
            def replay(self):
                for seconds in self.launches:
                    gpu.launch(seconds)

        @contextlib.contextmanager
        def capture(graph, stream):
            gpu.empty_cache()
            gpu.captured = graph.launches = []
            yield
            gpu.captured = None

        for name, stand_in in {
            "is_available": lambda: True,
            "synchronize": self.synchronize,
            "Event": Event,
            "_sleep": lambda cycles: self.launch(cycles / 1.98e9),  # an H200's clock
            "Stream": Stream,
            "current_stream": Stream,
            "stream": contextlib.nullcontext,
            "CUDAGraph": Graph,
            "graph": capture,
            "memory_reserved": lambda: self.reserved,
            "empty_cache": self.empty_cache,
        }.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        monkeypatch.setattr(torch, "empty", lambda *size, **options: Flush())
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def launch(self, seconds):
        if self.captured is None:
            start = max(self.now, self.free)
            self.free = start + (1.15 if start < self.cleared else 1) * seconds
        else:
            self.captured.append(seconds)

    def synchronize(self):
        self.now = max(self.now, self.free)

    def sleep(self, seconds):
        self.now += seconds

    def empty_cache(self):
        self.cleared = max(self.now, self.cleared) + self.cached / 0.4e12  # an H200's driver
        self.reserved, self.cached = self.reserved - self.cached, 0


def test_median_time_is_the_gpus_alone(monkeypatch):
    gpu = Gpu(monkeypatch)
    host_times = itertools.cycle([2e-3, 2.5e-3, 3.1e-3])

    def two_kernels():
        for _ in range(2):
            gpu.now += next(host_times)
            gpu.launch(3e-6)

    assert timing.median_time(two_kernels) == pytest.approx(6e-6)


def test_median_time_has_the_gaps_of_a_call_that_synchronises(monkeypatch):
    gpu = Gpu(monkeypatch)

    def read_back():
        gpu.launch(1e-3)
        gpu.synchronize()
        gpu.now += 2e-4
        gpu.launch(1e-3)

    assert timing.median_time(read_back) == pytest.approx(2.2e-3)


def test_graph_time_is_that_of_one_of_its_calls(monkeypatch):
    gpu = Gpu(monkeypatch)

    def slow_host(seconds):
        gpu.now += 2e-3
        gpu.launch(seconds)

    calls = [functools.partial(slow_host, x) for x in (3e-6, 5e-6, 7e-6)]
    assert timing.graph_time(lambda: calls, repeats=7) == pytest.approx(5e-6)
    assert gpu.reads == 7


def test_graph_time_is_not_that_of_a_driver_that_clears_memory(monkeypatch):
    """Of 30 GB that are free when the graph is captured, and of which 10 are in use."""
    gpu = Gpu(monkeypatch)
    gpu.reserved, gpu.cached = 40e9, 30e9
    assert timing.graph_time(lambda: [lambda: gpu.launch(5e-6)]) == pytest.approx(5e-6)
    assert (gpu.reserved, gpu.cached) == (10e9, 0)


def test_sustained_is_the_time_of_each_contender(monkeypatch):
    gpu = Gpu(monkeypatch)
    fns = {"quick": lambda: gpu.launch(2e-4), "slow": lambda: gpu.launch(5e-4)}
    found = timing.sustained(fns, warmup=0.01, window=0.01, rounds=3)
    assert found == pytest.approx({"quick": 2e-4, "slow": 5e-4})


# ---- With a GPU ----------------------------------------------------------------------------------
# Others may use it as well, so that a call takes longer, by the host's clock no less.


class Spin:
    """A call that keeps the GPU busy for some of its cycles, and how often it was made."""

    cycles = 4_000_000  # 2 ms of an H200

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        torch.cuda._sleep(self.cycles)


def by_median_time(spin):
    return timing.median_time(spin, 10), 10


def by_graph_time(spin):
    return timing.graph_time(lambda: [spin, spin, spin], 10), 10 * 3


def by_sustained(spin):
    seconds = timing.sustained({"spin": spin}, warmup=0.0, window=0.05, rounds=2)["spin"]
    return seconds, spin.calls - 15  # behind those of a median of 5


@pytest.mark.gpu
@pytest.mark.parametrize("clock", [by_median_time, by_graph_time, by_sustained])
def test_gpu_clocks_are_between_cycles_and_the_hosts_clock(clock):
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    spin, start = Spin(), time.perf_counter()
    seconds, times = clock(spin)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    assert seconds >= Spin.cycles / timing.CYCLES_PER_SECOND
    # At least half of the times that were taken are no shorter than their median.
    assert times / 2 * seconds <= elapsed


@pytest.mark.gpu
def test_median_time_of_a_slow_host():
    x, asleep = torch.zeros(1, device="cuda"), 0.2

    def call():
        x.add_(1)
        time.sleep(asleep)
        x.add_(1)

    # Two empty kernels, and no sleep; but others' work may be between them.
    assert timing.median_time(call, 3) < asleep


@pytest.mark.gpu
def test_graph_time_of_a_backward_pass():
    x = torch.randn(1 << 20, device="cuda", requires_grad=True)

    def prepare():
        y, dy = x.square(), torch.ones_like(x)
        return [lambda: torch.autograd.grad(y, x, dy, retain_graph=True)]

    start = time.perf_counter()
    seconds = timing.graph_time(prepare)
    elapsed = time.perf_counter() - start
    assert 12 * x.numel() / 10e12 < seconds
    assert 20 / 2 * seconds <= elapsed
