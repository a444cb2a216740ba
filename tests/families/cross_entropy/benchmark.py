"""The benchmark of cross_entropy, small enough for a CPU."""

import pytest

from benchmarks import bench_cross_entropy

PEERS = ("torch", "torch.compile")  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_cross_entropy, "SHAPES", ((12, 64, "bf16"), (12, 63, "fp32")))
    monkeypatch.setattr(bench_cross_entropy, "LINEAR_SHAPES", ((12, 16, 64),))
