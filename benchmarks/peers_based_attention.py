"""Other people's Based attention: q, k [batch, seq, heads, features], v [… , values]."""

from __future__ import annotations

import torch

from benchmarks import peers
from benchmarks.harness import Call, Inputs


def fla(i: Inputs, backward: bool) -> Call:
    """flash-linear-attention's Triton kernel, chunkwise, normalised."""
    run = peers.find("fla.ops.based", "fused_chunk_based", "flash-linear-attention")
    q, k, v = (i[name].detach().requires_grad_(backward) for name in "qkv")

    def forward() -> torch.Tensor:
        return run(q, k, v, scale=q.shape[-1] ** -0.5, use_norm=True)

    if not backward:
        return lambda: (forward(),)
    o = forward()
    return lambda: torch.autograd.grad(o, (q, k, v), i["do"], retain_graph=True)
