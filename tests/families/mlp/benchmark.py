"""The benchmark of mlp, small enough for a CPU."""

import pytest

from benchmarks import bench_mlp

PEERS = ("torch", "torch.compile")  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_mlp, "SHAPES", ((24, 64, 128), (12, 72, 40)))
