"""Scales for keys and values of float8_e4m3fn: of each key head, from the weights alone.

The norm before a layer leaves rows of length √hidden_size at most, times its weight w. So an
element of k or v, a product with a row r of the projection, is at most √hidden_size · ‖r ∘ w‖ +
|bias|; behind a norm of its own head, √D times that one's weight. Turned by its position, a pair of
k keeps its length. The scale brings the largest bound of a head to 224 … 448, which is where e4m3
ends: nothing is ever too large for it, whatever the text, and nothing has to be measured first.

That the bound is some √hidden_size times what elements usually are costs no precision: numbers of
e4m3 have 4 significant bits from 448 down to a 28,672nd of it, and below are off by a 458,752nd of
it at most. Scales are powers of two, so that k / scale and what is read back are exact but for the
one rounding to e4m3.
"""

import math

import torch
from torch import Tensor

from models.llama import Block, Llama
from models.quantized import weight_of

LARGEST = torch.finfo(torch.float8_e4m3fn).max  # 448


@torch.no_grad()
def scales_of(model: Llama) -> list[dict[str, Tensor]]:
    """For every layer `k_scale` and `v_scale`, float32 [Hk], as the ops take them."""
    return [
        {"k_scale": _scales(_rotated(_bounds(block, 1))), "v_scale": _scales(_bounds(block, 2))}
        for block in model.blocks
    ]


def _bounds(block: Block, which: int) -> Tensor:
    """What elements of k (1) or v (2) can be at most, [Hk, D]."""
    if which == 1 and block.k_norm is not None:
        return (math.sqrt(block.dim) * block.k_norm.weight.float().abs()).expand(block.heads[1], -1)
    first, rows = sum(block.heads[:which]) * block.dim, block.heads[which] * block.dim
    weight = weight_of(block.qkv)[first : first + rows].float() * block.norm.weight.float()
    bounds = math.sqrt(weight.shape[1]) * weight.norm(dim=1)
    if block.qkv.bias is not None:
        bounds += block.qkv.bias[first : first + rows].float().abs()
    return bounds.view(-1, block.dim)


def _rotated(bounds: Tensor) -> Tensor:
    """The same of k turned by any angles: each element of a pair can be as long as the pair."""
    return torch.hypot(*bounds.chunk(2, dim=-1))


def _scales(bounds: Tensor) -> Tensor:
    """Of each head the least power of two times which e4m3 holds its bounds; 1 of what has none."""
    largest = bounds.amax(dim=-1)
    found = [
        2.0 ** math.ceil(math.log2(most / LARGEST)) if 0 < most < math.inf else 1.0
        for most in largest.tolist()
    ]
    return torch.tensor(found, dtype=torch.float32, device=bounds.device)
