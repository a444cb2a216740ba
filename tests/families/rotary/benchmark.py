"""The benchmark of rotary, small enough for a CPU."""

import pytest

from benchmarks import bench_rotary

PEERS = ("torch", "torch.compile")  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    small = [bench_rotary.Shape(2, 3, 2, 1, 8, rotated, rotated < 8) for rotated in (8, 4)]
    monkeypatch.setattr(bench_rotary, "SHAPES", small)
