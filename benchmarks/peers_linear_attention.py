"""Other people's linear attention: q, k, v [batch, seq, heads, head_dim], decays [heads]."""

from __future__ import annotations

import torch

from benchmarks import peers
from benchmarks.harness import Call, Inputs


def fla(i: Inputs, backward: bool) -> Call:
    """flash-linear-attention's Triton kernels, chunkwise; without the gradient of the decays."""
    run = peers.find("fla.ops.simple_gla", "chunk_simple_gla", "flash-linear-attention")
    q, k, v = (i[name].detach().requires_grad_(backward) for name in "qkv")

    def forward() -> torch.Tensor:
        return run(q, k, v, g_gamma=i["log_decay"])[0]

    if not backward:
        return lambda: (forward(),)
    o = forward()
    return lambda: torch.autograd.grad(o, (q, k, v), i["do"], retain_graph=True)
