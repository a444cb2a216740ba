"""Attention of heads that models have beside 64 and 128: FLOPs / time, forward and backward.

72 (SigLIP, DiT-XL), 80 (ViT-H), 96 (Phi-3), 192 with values of 128 (DeepSeek's MLA) and 192. FLOPs:
2 · batch · heads · seq² · (D + Dv), half of it when causal; of a backward 2.5 times as many. Each
point has 16384 tokens and 16 heads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import torch

from benchmarks import bench_attention as forward
from benchmarks import bench_attention_backward as backward
from benchmarks import harness
from benchmarks import peers_attention as peers
from benchmarks.harness import OURS, Case, Inputs

TOKENS, HEADS = 16384, 16
WIDTHS = [(72, 72), (80, 80), (96, 96), (192, 128), (192, 192)]
SEQUENCES = [(False, 4096), (True, 1024)]
QUICK = [(72, 72), (192, 128)]


def make_inputs(head_dim: int, value_dim: int, seq: int, seed: int) -> Inputs:
    """q, k [batch, seq, heads, D], v, do [batch, seq, heads, Dv] in bf16, normally distributed."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)
    widths = {"q": head_dim, "k": head_dim, "v": value_dim, "do": value_dim}
    shape = (TOKENS // seq, seq, HEADS)
    return {
        name: torch.randn(*shape, width, device=harness.DEVICE, generator=random).bfloat16()
        for name, width in widths.items()
    }


def cases(quick: bool = False) -> Iterator[Case]:
    """Forward and backward of each head, full and causal; `quick` takes two heads."""
    for (head_dim, value_dim), (causal, seq) in itertools.product(
        QUICK if quick else WIDTHS, SEQUENCES
    ):
        width = head_dim + value_dim
        flops = 2 * TOKENS * seq * HEADS * width // (2 if causal else 1)
        values = "" if value_dim == head_dim else f", values {value_dim}"
        for op, work, tensors, module, sdpa in (
            ("attention_heads", flops, 2, forward, peers.sdpa),
            ("attention_heads_backward", flops * 5 // 2, 4.5, backward, backward.sdpa),
        ):
            yield Case(
                op=op,
                shape=f"head_dim {head_dim}{values}, {'causal' if causal else 'full'}, seq {seq}",
                dtype="bf16",
                work=work,
                unit="TFLOP/s",
                inputs=partial(make_inputs, head_dim, value_dim, seq),
                expected=partial(module.expected, causal=causal),
                contenders={
                    OURS: partial(module.ours, causal=causal),
                    "cuDNN": partial(sdpa, backend="CUDNN_ATTENTION", causal=causal),
                },
                resident=int(tensors * 2 * TOKENS * HEADS * width),
            )
