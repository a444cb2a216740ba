"""Other people's Mamba-2: x [batch, seq, heads, head_dim], B, C [batch, seq, groups, state]."""

from __future__ import annotations

import torch

from benchmarks import peers
from benchmarks.harness import Call, Inputs


def mamba_ssm(i: Inputs, backward: bool) -> Call:
    """mamba_ssm's Triton kernels, in chunks of 256, as its modules call them."""
    run = peers.find("mamba_ssm.ops.triton.ssd_combined", "mamba_chunk_scan_combined", "mamba-ssm")
    names = ("x", "dt", "B", "C")
    x, dt, B, C = (i[name].detach().requires_grad_(backward) for name in names)

    def forward() -> torch.Tensor:
        return run(x, dt, i["A"], B, C, 256, D=i["D"], dt_bias=i["dt_bias"], dt_softplus=True)

    if not backward:
        return lambda: (forward(),)
    y = forward()
    return lambda: torch.autograd.grad(y, (x, dt, B, C), i["dy"], retain_graph=True)
