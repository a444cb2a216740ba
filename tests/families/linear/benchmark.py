"""The benchmark of linear, small enough for a CPU."""

import pytest

from benchmarks import bench_linear, bench_linear_step, bench_quantized_linear

BENCHMARKS = ("linear", "linear_step", "quantized_linear")
PEERS = ("torch", "torch.compile")  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_linear, "SHAPES", ((2, 64, 48, False), (3, 64, 48, True)))
    monkeypatch.setattr(bench_quantized_linear, "SHAPES", ((2, 64, 48), (3, 64, 48)))
    small = bench_linear_step.Model(layers=2, width=64, qkv=96, hidden=48, vocabulary=80)
    monkeypatch.setattr(bench_linear_step, "MODELS", {"small": small})
