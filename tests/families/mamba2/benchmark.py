"""The benchmarks of mamba2, small enough for a CPU."""

import pytest

from benchmarks import bench_mamba2, bench_mamba2_step

BENCHMARKS = ("mamba2", "mamba2_step")
PEERS = ()  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_mamba2, "SHAPES", [bench_mamba2.Shape(1, 128, 2, 16, 1, 8)])
    monkeypatch.setattr(bench_mamba2_step, "SHAPES", [(2, 4, 16, 1, 8)])
