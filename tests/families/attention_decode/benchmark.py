"""The benchmark of attention_decode, small enough for a CPU."""

import pytest

from benchmarks import bench_attention_decode

PEERS = ("torch",)  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        bench_attention_decode, "SHAPES", [bench_attention_decode.Shape(2, 40, 4, 2)]
    )
