"""The benchmark of the activations, small enough for a CPU."""

import pytest

from benchmarks import bench_activation

PEERS = ("torch", "torch.compile")  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GATED_SHAPES", "GELU_SHAPES"):
        monkeypatch.setattr(bench_activation, name, ((12, 64, "bf16"), (12, 63, "fp32")))
