"""The benchmarks of based_attention, small enough for a CPU."""

import pytest

from benchmarks import bench_based_attention, bench_based_attention_step

BENCHMARKS = ("based_attention", "based_attention_step")
PEERS = ()  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_based_attention, "SHAPES", [bench_based_attention.Shape(1, 70, 2)])
    monkeypatch.setattr(bench_based_attention_step, "SHAPES", [(2, 3, 8, 20)])
