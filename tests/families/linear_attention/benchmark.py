"""The benchmarks of linear_attention, small enough for a CPU."""

import pytest

from benchmarks import bench_linear_attention, bench_linear_attention_step

BENCHMARKS = ("linear_attention", "linear_attention_step")
PEERS = ()  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    small = [bench_linear_attention.Shape(1, 70, 2, 16)]
    monkeypatch.setattr(bench_linear_attention, "SHAPES", small)
    steps = [bench_linear_attention_step.Shape(2, 3, 20)]
    monkeypatch.setattr(bench_linear_attention_step, "SHAPES", steps)
