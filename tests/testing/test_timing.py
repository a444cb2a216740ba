"""The clocks: without a GPU they say so, with one they agree with each other."""

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


@pytest.mark.gpu
def test_gpu_clocks_agree():
    x = [torch.randn(8192, 4096, device="cuda") for _ in range(4)]

    def copy(i):
        return lambda: x[i].clone()

    flushed = timing.median_time(copy(0))
    replayed = timing.graph_time([copy(i) for i in range(4)])
    lasting = timing.sustained({"clone": copy(0)}, warmup=0.1, window=0.1, rounds=2)["clone"]
    moved = 2 * x[0].nbytes
    assert moved / 10e12 < replayed < 4 * flushed
    assert 0.5 < flushed / replayed < 2
    assert 0.5 < lasting / replayed < 2


@pytest.mark.gpu
def test_host_overhead_of_the_ops():
    """7 µs without a gradient and 12 with one on a fast host; a wide margin for a slow one."""
    import thunderkittens

    x, weight, bias = (torch.randn(s, device="cuda") for s in ((16, 1024), (1024,), (1024,)))
    plain = timing.host_overhead(lambda: thunderkittens.layer_norm(x, weight, bias))
    weight.requires_grad_()
    recording = timing.host_overhead(lambda: thunderkittens.layer_norm(x, weight, bias))
    print(
        f"host time per call: {plain * 1e6:.2f} us, recording a gradient {recording * 1e6:.2f} us"
    )
    assert plain < 20e-6
    assert recording < 40e-6
