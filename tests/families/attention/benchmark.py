"""The benchmarks of attention, small enough for a CPU."""

import pytest

from benchmarks import bench_attention, bench_attention_backward, bench_attention_heads

BENCHMARKS = ("attention", "attention_backward", "attention_heads")
PEERS = ()  # that are there on a CPU


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_attention, "TOKENS", 64)
    monkeypatch.setattr(bench_attention, "MODEL_WIDTH", 128)
    monkeypatch.setattr(bench_attention, "POINTS", [(64, True, 32), (64, False, 16)])
    monkeypatch.setattr(bench_attention_backward, "WIDE", [])
    monkeypatch.setattr(bench_attention_heads, "TOKENS", 64)
    monkeypatch.setattr(bench_attention_heads, "HEADS", 2)
    monkeypatch.setattr(bench_attention_heads, "WIDTHS", [(24, 24), (24, 16)])
    monkeypatch.setattr(bench_attention_heads, "SEQUENCES", [(True, 32), (False, 16)])
