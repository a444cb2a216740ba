"""The benchmark of AdamW, small enough for a CPU."""

import pytest

from benchmarks import bench_adamw

PEERS = ("torch fused", "torch foreach")  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_adamw, "MODELS", {"a small one": ((12, 16), (3,), (40,))})
