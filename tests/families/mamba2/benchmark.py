"""The benchmark of mamba2, small enough for a CPU."""

import pytest

from benchmarks import bench_mamba2

PEERS = ()  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_mamba2, "SHAPES", [bench_mamba2.Shape(1, 128, 2, 16, 1, 8)])
