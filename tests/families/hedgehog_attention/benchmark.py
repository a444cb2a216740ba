"""The benchmarks of hedgehog_attention, small enough for a CPU."""

import pytest

from benchmarks import bench_hedgehog_attention, bench_hedgehog_attention_step

BENCHMARKS = ("hedgehog_attention", "hedgehog_attention_step")
PEERS = ()  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    small = [bench_hedgehog_attention.Shape(1, 70, 2, 16)]
    monkeypatch.setattr(bench_hedgehog_attention, "SHAPES", small)
    monkeypatch.setattr(bench_hedgehog_attention_step, "SHAPES", [(2, 3, 16)])
