"""The benchmark of attention_decode, small enough for a CPU."""

import pytest

from benchmarks import bench_attention_decode

PEERS = ("torch",)  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [bench_attention_decode.Shape(2, 40, 4, 2, fp8=fp8) for fp8 in (False, True)]
    monkeypatch.setattr(bench_attention_decode, "SHAPES", shapes)
