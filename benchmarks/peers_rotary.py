"""Other people's rotary embeddings: q, k [batch, seq, heads, head_dim], cos, sin [seq, pairs]."""

from __future__ import annotations

import torch

from benchmarks import peers
from benchmarks.harness import Call, Inputs, MissingPeer, Outputs


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool):
    """The formula in float32, rounded once: what PyTorch is given."""
    pairs, c, s = cos.shape[-1], cos.float().unsqueeze(1), sin.float().unsqueeze(1)
    part = x[..., : 2 * pairs].float()
    x1, x2 = part.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else part.chunk(2, -1)
    both = (x1 * c - x2 * s, x1 * s + x2 * c)
    part = torch.stack(both, -1).flatten(-2) if interleaved else torch.cat(both, -1)
    return torch.cat((part.to(x.dtype), x[..., 2 * pairs :]), -1)


def formula(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
) -> Outputs:
    """Both operands."""
    return turned(q, cos, sin, interleaved), turned(k, cos, sin, interleaved)


def eager(i: Inputs, interleaved: bool) -> Call:
    """PyTorch, one op after the other."""
    return lambda: formula(i["q"], i["k"], i["cos"], i["sin"], interleaved)


def compiled(i: Inputs, interleaved: bool) -> Call:
    """The same formula, compiled."""
    run = peers.compiled(formula)
    return lambda: run(i["q"], i["k"], i["cos"], i["sin"], interleaved)


def liger(i: Inputs, interleaved: bool) -> Call:
    """Liger's Triton kernel, which writes copies in place; float32 tables make it compute so."""
    run = peers.find("liger_kernel.ops.rope", "rope_forward", "liger-kernel")
    q, k = (i[name].clone().transpose(1, 2) for name in "qk")
    if interleaved or 2 * i["cos"].shape[-1] != q.shape[-1]:
        raise MissingPeer("Liger turns halves of whole heads alone")
    tables = [torch.cat([i[name].float()] * 2, -1).unsqueeze(0) for name in ("cos", "sin")]
    return lambda: [t.transpose(1, 2) for t in run(q, k, *tables)[:2]]


def flash(i: Inputs, interleaved: bool) -> Call:
    """flash-attention's Triton kernel, a launch for each operand."""
    run = peers.find("flash_attn.ops.triton.rotary", "apply_rotary", "flash-attn")
    return lambda: [run(i[n], i["cos"], i["sin"], interleaved=interleaved) for n in "qk"]
