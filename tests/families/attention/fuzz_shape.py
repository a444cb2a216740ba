"""The sizes of a call of attention that fuzz.py draws, and which row sees which key."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Shape:
    """Of one call: sizes, and how the tokens of packed sequences are told apart."""

    batch: int
    rows: int
    keys: int
    heads: int
    key_heads: int
    width: int
    value_width: int
    row_lengths: tuple[int, ...] = ()
    key_lengths: tuple[int, ...] = ()
    before: int = 0  # tokens of no sequence, in front of the first one
    key_ranges: tuple[tuple[int, int], ...] = ()  # of each batch, the keys that exist: first, end

    @property
    def packed(self) -> bool:
        return bool(self.row_lengths)


def visible(s: Shape, options: dict, device: torch.device) -> Tensor:
    """[Sq, Sk], by the docstring: the diagonal of row i is i + Sk − Sq, of its sequence.

    Where keys do not exist [B, 1, 1, Sq, Sk], and Sk is behind the last one that does.
    """
    row, key = torch.arange(s.rows, device=device), torch.arange(s.keys, device=device)
    if s.packed:
        row_of, row_at = places(s.row_lengths, s.before, s.rows, device)
        key_of, key_at = places(s.key_lengths, s.before, s.keys, device)
        more = torch.tensor(s.key_lengths, device=device) - torch.tensor(
            s.row_lengths, device=device
        )
        diagonal = row_at + more[row_of.clamp(min=0)]
        seen = (row_of[:, None] == key_of[None]) & (key_of[None] >= 0)
        away = key_at[None] - diagonal[:, None]
    elif s.key_ranges:
        seen = exist(s, device).view(s.batch, 1, 1, 1, s.keys)
        ends = torch.tensor(s.key_ranges, device=device)[:, 1].view(-1, 1, 1, 1, 1)
        away = key - (row[:, None] + ends - s.rows)
        seen = seen.expand(away.shape)
    else:
        seen = torch.ones(s.rows, s.keys, dtype=torch.bool, device=device)
        away = key[None] - (row + s.keys - s.rows)[:, None]
    left, right = options.get("window", (None, None))
    right = 0 if options.get("causal") else right
    if left is not None:
        seen = seen & (away >= -left)
    return seen if right is None else seen & (away <= right)


def exist(s: Shape, device: torch.device) -> Tensor:
    """[B, Sk]: which keys do."""
    bounds = torch.tensor(s.key_ranges, device=device)
    key = torch.arange(s.keys, device=device)
    return (key >= bounds[:, :1]) & (key < bounds[:, 1:])


def places(
    lengths: tuple[int, ...], before: int, total: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Of each token its sequence, −1 if none, and its place there."""
    sequence = torch.full((total,), -1, device=device)
    place = torch.zeros(total, dtype=torch.long, device=device)
    count = torch.tensor(lengths, device=device)
    end = before + sum(lengths)
    sequence[before:end] = torch.repeat_interleave(torch.arange(len(lengths), device=device), count)
    starts = count.cumsum(0) - count
    inside = torch.arange(end - before, device=device)
    place[before:end] = inside - torch.repeat_interleave(starts, count)
    return sequence, place
