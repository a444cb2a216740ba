"""A small transformer that is trained for some steps, of our ops where there are some."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import thunderkittens
from thunderkittens.testing import memory


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of the model and of what it is trained on."""

    batch: int
    length: int
    heads: int
    key_heads: int
    head_dim: int
    layers: int = 2
    vocabulary: int = 300
    steps: int = 20

    @property
    def width(self) -> int:
        return self.heads * self.head_dim


class Block(nn.Module):
    """Causal attention with grouped heads, then an MLP, each on the normalised residual stream."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes, width = sizes, sizes.width
        self.norms = nn.ModuleList(thunderkittens.nn.LayerNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, (sizes.heads + 2 * sizes.key_heads) * sizes.head_dim)
        self.out, self.up = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        s = self.sizes
        heads = self.qkv(self.norms[0](x)).unflatten(-1, (-1, s.head_dim))
        q, k, v = heads.split([s.heads, s.key_heads, s.key_heads], -2)
        x = x + self.out(thunderkittens.attention(q, k, v, causal=True).flatten(-2))
        return x + self.down(self.up(self.norms[1](x)).relu())


class Model(nn.Module):
    """From tokens to the loss of each one's successor."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.width)
        self.places = nn.Parameter(0.02 * torch.randn(sizes.length, sizes.width))
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = thunderkittens.nn.LayerNorm(sizes.width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens[:, :-1]) + self.places
        for block in self.blocks:
            x = block(x)
        head = self.tokens.weight.to(x.dtype)
        return thunderkittens.linear_cross_entropy(self.norm(x), head, tokens[:, 1:])


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """Torch's ops raise where they would not give the same bits on every run."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def train(sizes: Sizes, dtype: torch.dtype, device: str) -> list[Tensor]:
    """The losses, and the weights after the last step."""
    torch.manual_seed(5)
    model = Model(sizes).to(device, dtype)
    # Squares of gradients vanish in fp16, so that the default of 1e-8, 0 there, would divide by 0.
    eps = 1e-4 if dtype is torch.float16 else 1e-8
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, eps=eps)
    losses = []
    for _ in range(sizes.steps):
        # A sequence that can be learnt: each token follows from the one before.
        first = torch.randint(sizes.vocabulary, (sizes.batch, 1))
        steps = torch.arange(sizes.length + 1)
        tokens = ((first + 7 * steps) % sizes.vocabulary).to(device)
        loss = model(tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [torch.stack(losses), *(p.detach() for p in model.parameters())]


def check(sizes: Sizes, dtype: torch.dtype, device: str) -> None:
    """Asserts that two runs have the same bits, in the losses and in all weights, and learn."""
    with deterministic():
        first, second = (train(sizes, dtype, device) for _ in range(2))
    assert all(map(memory.bits_equal, first, second))
    losses = first[0].double()
    assert bool(torch.stack([t.isfinite().all() for t in first]).all())
    assert float(losses[-1]) < float(losses[0])
