"""Hedgehog's attention in place of a GPT-2's softmax attention, and adapters of low rank."""

import math

import torch
from models.gpt2 import GPT2, Attend, Conv1D
from torch import Tensor, nn
from torch.nn import functional

import thunderkittens as tk


class Hedgehog(nn.Module):
    """Takes the place of `attention` in a block; while it is taught, the softmax goes on as it was.

    Attributes:
        learned: The attention with its maps and weights, which are all that it has.
        error: While it is taught, how far `learned` was from softmax attention at the last call:
            the mean square of the difference, over the mean square of what it should be.
    """

    def __init__(self, heads: int, head_dim: int, features: int) -> None:
        super().__init__()
        self.learned = tk.nn.HedgehogAttention(heads, head_dim, features)
        self.taught, self.error = False, torch.zeros(())

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *, causal: bool = True) -> Tensor:
        """As thunderkittens.attention of [B, S, H, D], causal alone."""
        if not self.taught:
            return self.learned(query, key, value)
        wanted = tk.attention(query, key, value, causal=causal)
        # In autocast too, where outputs have 16 bits, the difference is taken in float32.
        got = self.learned(query, key, value).float()
        self.error = functional.mse_loss(got, wanted.float()) / wanted.float().square().mean()
        return wanted


class Cache:
    """Of each layer a HedgehogState, as large after a million tokens as after one."""

    def __init__(self, layers: int) -> None:
        self.states: list[tk.HedgehogState | None] = [None] * layers
        self.length = 0

    def attend(self, layer: int, attention: Attend, *heads: Tensor) -> Tensor:
        """Of query, key and value, [B, S, H, D]: one token by a step, more by the whole."""
        state = self.states[layer]
        if state is not None and heads[0].size(1) == 1:
            y = attention.learned.step(*(t.squeeze(1) for t in heads), state)
            return y.unsqueeze(1)
        options = {"initial_state": state, "output_final_state": True}
        y, self.states[layer] = attention.learned(*heads, **options)
        return y

    def reset(self) -> None:
        """Forgets all tokens."""
        self.states, self.length = [None] * len(self.states), 0

    def nbytes(self) -> int:
        """What is remembered."""
        return sum(t.nbytes for state in self.states if state is not None for t in state)


def exchange(model: GPT2, features: int) -> list[Hedgehog]:
    """Puts Hedgehog's attention into every block; its maps are random, nothing is trained yet."""
    config, weight = model.config, model.transformer.wte.weight
    layers = []
    for block in model.transformer.h:
        layer = Hedgehog(config.n_head, config.n_embd // config.n_head, features)
        del block.attn.attention  # a function; what follows is a module
        block.attn.attention, block.attn.attention_qkvpacked = layer.to(weight.device), None
        layers.append(layer)
    return layers


class LowRank(nn.Module):
    """A Conv1D, frozen, plus x A B · (alpha / rank): LoRA. B is 0 at first."""

    def __init__(self, base: Conv1D, rank: int, alpha: float) -> None:
        super().__init__()
        inputs, outputs = base.weight.shape
        self.base, self.scale = base, alpha / rank
        self.a = nn.Parameter(base.weight.new_empty(inputs, rank))
        self.b = nn.Parameter(base.weight.new_zeros(rank, outputs))
        nn.init.kaiming_uniform_(self.a.T, a=math.sqrt(5))  # as a linear layer of torch's begins

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        return self.base(x) + (x @ self.a) @ self.b * self.scale

    @torch.no_grad()
    def merged(self) -> Conv1D:
        """The same function as one matrix."""
        self.base.weight += self.a @ self.b * self.scale
        return self.base


def add_adapters(model: GPT2, rank: int) -> list[nn.Parameter]:
    """Adapters on the projections of every attention; returns what they train."""
    trained = []
    for block in model.transformer.h:
        for name in ("c_attn", "c_proj"):
            adapter = LowRank(getattr(block.attn, name), rank, alpha=2 * rank)
            setattr(block.attn, name, adapter)
            trained += [adapter.a, adapter.b]
    return trained


def merge_adapters(model: GPT2) -> None:
    """Back to one matrix each: nothing of the adapters is left."""
    for block in model.transformer.h:
        for name in ("c_attn", "c_proj"):
            if isinstance(adapter := getattr(block.attn, name), LowRank):
                setattr(block.attn, name, adapter.merged())
