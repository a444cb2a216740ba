"""PyTorch's attention, by each of its backends, as contenders."""

from __future__ import annotations

import torch
import torch.nn.attention

from benchmarks.harness import Call, Inputs

# ---- attention: q, k, v [batch, seq, heads, head_dim] -------------------------------------------


def sdpa(i: Inputs, backend: str, causal: bool) -> Call:
    """`scaled_dot_product_attention` held to one of its backends ("CUDNN_ATTENTION", …)."""
    q, k, v = (i[name].transpose(1, 2) for name in "qkv")
    choice = getattr(torch.nn.attention.SDPBackend, backend)

    def call() -> tuple[torch.Tensor]:
        with torch.nn.attention.sdpa_kernel(choice):
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return (o.transpose(1, 2),)

    return call
