"""Models of Llama's shape on thunderkittens ops: Llama 3, Mistral, Qwen 2.5 and Qwen 3.

    x = embedding[token]                                                     x: [N, hidden_size]
    for each block:   x = x + attention(rms_norm(x));   x = x + down(swiglu(rms_norm(x)))
    logits = rms_norm(x) @ headᵀ                                             logits: [N, vocab_size]

The rows of x are tokens, of any number of sequences: a packed prompt or one new token of each. Only
attention has to know which, so it is an argument of `forward` (demos/models/cached_attention.py).
The projections of q, k and v are one product, and so are those of gate and up.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from thunderkittens import linear, swiglu
from thunderkittens.nn import AddRMSNorm, RMSNorm

FEW_ROWS = 16  # that the kernel of `linear` takes, with what is before and behind a product

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Attention of a layer: (layer, q [N, Hq, D], k and v [N, Hk, D]) to o [N, Hq, D]. q and k are not
yet turned by their positions, and may be overwritten."""


@dataclass(frozen=True)
class Rope:
    """Rotary embedding: the wavelengths' base, and how Llama 3 stretches the long ones.

    Pair i turns by position · f, f = theta^(−2 i / head_dim). With `factor` above 1, f is divided
    by it where a wavelength 2π / f is above original / low, kept where it is below original / high,
    and in between is a mean of both, whose weight is linear in original · f / 2π.
    """

    theta: float = 10000.0
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192  # positions of the training before it was stretched


@dataclass(frozen=True)
class Config:
    """The shape of a model; what Hugging Face's configurations have, under their names."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rope: Rope
    windows: tuple[int | None, ...]  # of each layer: how many tokens one sees, itself among them
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    ends: tuple[int, ...] = ()  # tokens behind which a text has ended

    @property
    def heads(self) -> tuple[int, int, int]:
        """Heads of q, k and v."""
        return self.num_attention_heads, self.num_key_value_heads, self.num_key_value_heads


def rotary_tables(config: Config, positions: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines, float32 [positions, head_dim / 2] each, from angles in float64."""
    rope, dim = config.rope, config.head_dim
    pairs = torch.arange(dim // 2, dtype=torch.float64, device=device)
    frequency = rope.theta ** (-2 * pairs / dim)
    if rope.factor != 1.0:
        turns = rope.original * frequency / (2 * math.pi)
        kept = ((turns - rope.low) / (rope.high - rope.low)).clamp(0, 1)
        frequency = kept * frequency + (1 - kept) * frequency / rope.factor
    position = torch.arange(positions, dtype=torch.float64, device=device)
    angles = torch.outer(position, frequency)
    return angles.cos().float(), angles.sin().float()


class Linear(nn.Module):
    """y = x weightᵀ + bias."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        self.weight_is_constant = False  # Llama.freeze

    def forward(self, x: Tensor, **around: Any) -> Tensor:
        """[N, inputs] to [N, outputs]; `around`: what `linear` does before and behind it."""
        constant = self.weight_is_constant
        return linear(x, self.weight, self.bias, weight_is_constant=constant, **around)


class Block(nn.Module):
    """Attention, then the gated MLP, each on the norm of the residual stream and added back to it.

    What a block has computed last is added to the stream by the norm that comes next.
    """

    def __init__(self, config: Config):
        super().__init__()
        width, dim, eps = config.hidden_size, config.head_dim, config.rms_norm_eps
        self.heads, self.dim = config.heads, dim
        self.norm = AddRMSNorm(width, eps)
        self.qkv = Linear(width, sum(self.heads) * dim, config.qkv_bias)
        self.q_norm = RMSNorm(dim, eps) if config.qk_norm else None
        self.k_norm = RMSNorm(dim, eps) if config.qk_norm else None
        self.out = Linear(self.heads[0] * dim, width, config.out_bias)
        self.mlp_norm = AddRMSNorm(width, eps)
        self.gate_up = Linear(width, 2 * config.intermediate_size, config.mlp_bias)
        self.down = Linear(config.intermediate_size, width, config.mlp_bias)

    def forward(
        self, x: Tensor, stream: Tensor | None, attend: Callable[..., Tensor]
    ) -> tuple[Tensor, Tensor]:
        """What is to be added to the stream, and the stream, [N, hidden_size] each; so are results.

        The first block has no stream yet: None. Nor has a block of few rows, of which a step of
        decoding is: each of its products adds to the stream itself, and takes the norm of it.
        """
        if len(x) <= FEW_ROWS and x.dtype != torch.float16:
            return self._add(x if stream is None else x + stream, attend), None
        y, stream = self.norm(x, stream)
        y = attend(*self._heads(self.qkv(y))).flatten(1)
        y, stream = self.mlp_norm(self.out(y), stream)
        return self.down(swiglu(*self.gate_up(y).chunk(2, dim=-1))), stream

    def _add(self, x: Tensor, attend: Callable[..., Tensor]) -> Tensor:
        """The stream behind the block."""
        norms = [(norm.weight, norm.eps) for norm in (self.norm, self.mlp_norm)]
        q, k, v = self._heads(self.qkv(x, norm=norms[0]))
        x = self.out(attend(q, k, v).flatten(1), residual=x)
        return self.down(self.gate_up(x, norm=norms[1], activation="swiglu"), residual=x)

    def _heads(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v [N, heads, D]."""
        q, k, v = qkv.view(-1, sum(self.heads), self.dim).split(self.heads, dim=1)
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        return q, k, v


class Llama(nn.Module):
    """The language model."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.norm = AddRMSNorm(config.hidden_size, config.rms_norm_eps)
        tied = config.tie_word_embeddings
        self.head = None if tied else Linear(config.hidden_size, config.vocab_size)
        self.weight_is_constant = False  # of the head

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights, and of all that passes between ops."""
        return self.embedding.weight.dtype

    def forward(self, tokens: Tensor, attend: Attend, rows: Tensor | None = None) -> Tensor:
        """Tokens [N] to the logits [N, vocab_size]; of these `rows` [R] alone, [R, vocab_size]."""
        x, stream = self.embedding(tokens), None
        for layer, block in enumerate(self.blocks):
            x, stream = block(x, stream, partial(attend, layer))
        x, _ = self.norm(x, stream)
        head = self.embedding if self.head is None else self.head
        rows_of_x = x if rows is None else x[rows]
        return linear(rows_of_x, head.weight, weight_is_constant=self.weight_is_constant)

    def freeze(self) -> None:
        """Promises that no weight is written any more: `weight_is_constant` of all products.

        So one may begin to read its own while the kernel in front of it still runs. Whoever writes
        a weight nevertheless waits for the device before the next call.
        """
        for module in self.modules():
            if hasattr(module, "weight_is_constant"):
                module.weight_is_constant = True

    @torch.no_grad()
    def initialize(self, seed: int = 0) -> None:
        """Random weights: N(0, 0.02), norms' of 1."""
        generator = torch.Generator(self.device).manual_seed(seed)
        for name, parameter in self.named_parameters():
            if "norm" in name:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, 0.02, generator=generator)
