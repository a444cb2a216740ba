"""The mask of dropout, from its definition: Philox 4x32 with 7 rounds, in torch's int64.

(Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.) Element i meets word i % 4
of counter i // 4 under the seed as key, and is kept where it is at least p · 2³².
"""

import math

import torch
from torch import Tensor

LOW = 2**32 - 1
ROUNDS = 7
FACTORS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)


def halves(factor: int, word: Tensor) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of a product of 32-bit numbers; int64 wraps, which keeps its bits."""
    product = word * factor
    return (product >> 32) & LOW, product & LOW


def dropout_factors(shape: torch.Size, p: float, seed: Tensor) -> Tensor:
    """0.0 where an element is dropped, else 1.0, as float64."""
    count = math.prod(shape)
    counter = torch.arange((count + 3) // 4, device=seed.device)
    zeros = torch.zeros_like(counter)
    words = [counter & LOW, counter >> 32, zeros, zeros]
    key = [seed & LOW, (seed >> 32) & LOW]
    for _ in range(ROUNDS):
        high0, low0 = halves(FACTORS[0], words[0])
        high1, low1 = halves(FACTORS[1], words[2])
        words = [high1 ^ words[1] ^ key[0], low1, high0 ^ words[3] ^ key[1], low0]
        key = [(k + w) & LOW for k, w in zip(key, WEYL, strict=True)]
    numbers = torch.stack(words, 1).flatten()[:count].view(shape)
    return (numbers >= min(round(p * 2**32), LOW)).double()
