"""The benchmark of based_attention, small enough for a CPU."""

import pytest

from benchmarks import bench_based_attention

PEERS = ()  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_based_attention, "SHAPES", [bench_based_attention.Shape(1, 70, 2)])
