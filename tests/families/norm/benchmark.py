"""The benchmark of the norms, small enough for a CPU."""

import pytest

from benchmarks import bench_norm

PEERS = ("torch", "torch.compile")  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_norm, "LAYER_SHAPES", ((12, 64, "bf16"), (12, 63, "fp32")))
    monkeypatch.setattr(bench_norm, "SHAPES", ((12, 64),))
    monkeypatch.setattr(bench_norm, "HEADS", ((64, 16),))
