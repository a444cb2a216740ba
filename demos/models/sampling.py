"""How the next token is chosen: temperature, top-k and top-p as transformers means them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.transfer import sent

_UNITS = 2.0**40  # of a probability: sums of integers do not depend on their order


@dataclass(frozen=True)
class Sampling:
    """How to choose; the defaults are the likeliest token always.

    `temperature` 0 takes the likeliest. Otherwise logits are divided by it; then those below the
    `top_k`-th largest are dropped (0: none; equals of the k-th stay); then, of what is left, the
    least likely are dropped whose probabilities add up to at most 1 − `top_p` (1.0: none). At least
    one stays.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0


def processed(logits: Tensor, sampling: Sampling) -> Tensor:
    """Logits [rows, vocab_size] to scores, float32: what softmax draws from, −∞ where dropped."""
    scores = logits.float() / sampling.temperature
    if 0 < sampling.top_k < scores.shape[-1]:
        least = scores.topk(sampling.top_k).values[:, -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if sampling.top_p < 1.0:
        ascending, order = scores.sort(dim=-1)
        dropped = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - sampling.top_p
        dropped[:, -1].zero_()  # an assignment would wait for the GPU
        scores = scores.masked_fill(dropped.scatter(1, order, dropped), -torch.inf)
    return scores


def choose(logits: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """A token of each row, int64 [rows], from logits [rows, vocab_size].

    `uniform`, float64 [rows], are random numbers of [0, 1); the token is where the sum of
    probabilities up to it passes that share of the whole. The sums are of integers, in units of
    2⁻⁴⁰: they are exact, and one number means one token. Nothing is read back from the device.
    """
    if sampling.temperature == 0:
        return logits.argmax(dim=-1)
    weights = (processed(logits, sampling).softmax(dim=-1).double() * _UNITS).long()
    sums = weights.cumsum(dim=-1)
    total = sums[:, -1]
    target = (uniform * total).long().clamp(max=total - 1)
    return torch.searchsorted(sums, target[:, None], right=True)[:, 0]


def uniforms(count: int, rows: int, seed: int) -> Tensor:
    """Random numbers of [0, 1), float64 [count, rows]: those of row r are a seed's of their own.

    Drawn on the CPU: a seed means the same on every device.
    """
    columns = []
    for row in range(rows):
        generator = torch.Generator().manual_seed((seed + row) % 2**63)
        columns.append(torch.rand(count, dtype=torch.float64, generator=generator))
    return torch.stack(columns, dim=1)


def choose_each(logits: Tensor, samplings: Sequence[Sampling], uniform: Tensor) -> Tensor:
    """`choose` where every row has a sampling of its own; rows with the same go together.

    Of logits that are not finite it is any token, but a token.
    """
    groups: dict[Sampling, list[int]] = {}
    for row, sampling in enumerate(samplings):
        groups.setdefault(sampling, []).append(row)
    if len(groups) == 1:
        chosen = choose(logits, samplings[0], uniform)
    else:
        chosen = torch.empty(len(samplings), dtype=torch.int64, device=logits.device)
        for sampling, rows in groups.items():
            index = sent(rows, torch.int64, logits.device)
            chosen[index] = choose(logits[index], sampling, uniform[index])
    return chosen.clamp(min=0, max=logits.shape[-1] - 1)
