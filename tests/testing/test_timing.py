"""The clocks: without a GPU they say so, with one they agree with each other."""

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
    slow = timing.host_overhead(lambda: time.sleep(0.001), batches=3)
    assert 0.001 <= slow < 0.01
    x = torch.ones(4)
    assert 0 < timing.host_overhead(lambda: x + x, batches=20) < 0.001


class Gpu:
    """A GPU with one queue, and the clock of its host, in seconds."""

    def __init__(self, monkeypatch):
        self.now = self.free = 0.0  # the host's clock, and when all that is queued is done
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

        for name, stand_in in {
            "is_available": lambda: True,
            "synchronize": self.synchronize,
            "Event": Event,
            "_sleep": lambda cycles: self.launch(cycles / 1.98e9),  # an H200's clock
        }.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        monkeypatch.setattr(torch, "empty", lambda *size, **options: Flush())
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def launch(self, seconds):
        self.free = max(self.now, self.free) + seconds

    def synchronize(self):
        self.now = max(self.now, self.free)


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


@pytest.mark.gpu
def test_median_time_of_a_slow_host():
    x = torch.zeros(1, device="cuda")

    def call():
        x.add_(1)
        time.sleep(2e-3)
        x.add_(1)

    assert timing.median_time(call) < 50e-6  # two empty kernels, and no sleep


@pytest.mark.gpu
def test_gpu_clocks_agree():
    x = [torch.randn(8192, 4096, device="cuda") for _ in range(4)]

    def copy(i):
        return lambda: x[i].clone()

    flushed = timing.median_time(copy(0))
    replayed = timing.graph_time(lambda: [copy(i) for i in range(4)])
    lasting = timing.sustained({"clone": copy(0)}, warmup=0.1, window=0.1, rounds=2)["clone"]
    moved = 2 * x[0].nbytes
    assert moved / 10e12 < replayed < 4 * flushed
    assert 0.5 < flushed / replayed < 2
    assert 0.5 < lasting / replayed < 2


@pytest.mark.gpu
def test_graph_time_of_a_backward_pass():
    x = torch.randn(1 << 20, device="cuda", requires_grad=True)

    def prepare():
        y, dy = x.square(), torch.ones_like(x)
        return [lambda: torch.autograd.grad(y, x, dy, retain_graph=True)]

    assert 12 * x.numel() / 10e12 < timing.graph_time(prepare) < 1e-3
