"""What the models learn: to recall pairs, and text."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from models import data
from torch import Tensor

KEYS, VALUES = 32, 32  # symbols of the recall; those of values come after those of keys
HELD_OUT = 0.05  # the share of the text that is evaluated on

Batch = tuple[Tensor, Tensor]  # tokens [B, S]; targets [B, S], −100 where nothing is asked


class Task(NamedTuple):
    """Batches to train on, a function of the step, and some that are kept for evaluation."""

    symbols: int
    batch: Callable[[int], Batch]
    held_out: list[Batch]


def recall_batch(batch: int, pairs: int, generator: torch.Generator) -> Batch:
    """Pairs of a key and a value, then each key twice in another order: what was its value?

    Tokens and targets are [batch, 4 · pairs].
    """

    def shuffled(symbols: int) -> Tensor:
        return torch.rand(batch, symbols, generator=generator).argsort(1)

    keys = shuffled(KEYS)[:, :pairs]
    values = KEYS + torch.randint(VALUES, (batch, pairs), generator=generator)
    order = torch.cat([shuffled(pairs), shuffled(pairs)], 1)
    tokens = torch.cat([torch.stack([keys, values], 2).flatten(1), keys.gather(1, order)], 1)
    targets = torch.full_like(tokens, -100)
    targets[:, 2 * pairs :] = values.gather(1, order)
    return tokens, targets


def recall(pairs: int, batch: int) -> Task:
    """Associative recall: what a model remembers is all that it can answer from."""

    def at(step: int) -> Batch:
        return recall_batch(batch, pairs, torch.Generator().manual_seed(step + 1))

    return Task(KEYS + VALUES, at, [recall_batch(256, pairs, torch.Generator().manual_seed(0))])


def text(pattern: str | None, length: int, batch: int) -> Task:
    """The text of demos/train_gpt, a byte a token: which one is next?"""
    parts = data.split(data.read_documents(pattern), HELD_OUT)
    train, held_out = (
        torch.frombuffer(bytearray("\n".join(part).encode()), dtype=torch.uint8).long()
        for part in parts
    )
    batches = data.Batches(train, batch, length, seed=0)

    def split(tokens: Tensor) -> Batch:
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    held_out = data.evaluation_batches(held_out[: 16 * 4 * length + 1], 16, length)
    return Task(256, lambda step: split(batches[step]), [split(b) for b in held_out])
