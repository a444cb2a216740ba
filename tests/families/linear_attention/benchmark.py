"""The benchmark of linear_attention, small enough for a CPU."""

import pytest

from benchmarks import bench_linear_attention

PEERS = ()  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    small = [bench_linear_attention.Shape(1, 70, 2, 16)]
    monkeypatch.setattr(bench_linear_attention, "SHAPES", small)
