"""Ways to mix tokens, each a layer of ours, under one interface; and a model around any of them.

    forward(x)          x [B, S, width] → y, the same: a whole sequence at once, to train
    init_state(batch)   what is remembered before the first token
    forward(x, state)   x goes on where the state ends: a prompt, or a piece of a long text
    step(x, state)      one token, x [B, width] → y; the state is updated in place

Softmax attention remembers every token. All the others remember as much after a million tokens as
after one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import thunderkittens as tk


class Cache:
    """Keys and values of the tokens so far, [B, length, H, D]; its memory doubles where it ends."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self._memory, self.length = [keys, values], 0

    def append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Adds keys and values [B, S, H, D]; returns all so far."""
        length = self.length + new[0].shape[1]
        for i, (memory, added) in enumerate(zip(self._memory, new, strict=True)):
            if length > memory.shape[1]:
                batch, room, *of_token = memory.shape
                memory = memory.new_empty(batch, max(length, 2 * room), *of_token)
                memory[:, : self.length] = self._memory[i][:, : self.length]
                self._memory[i] = memory
            memory[:, self.length : length] = added
        self.length = length
        return tuple(self)

    def __iter__(self) -> Iterator[Tensor]:
        return (memory[:, : self.length] for memory in self._memory)


class SoftmaxAttention(nn.Module):
    """Causal attention; its state, the keys and values so far, grows with every token."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.shape, self.room = (3, heads, width // heads), 64  # tokens that a new cache holds
        self.qkv, self.out = (nn.Linear(width, n * width, bias=False) for n in (3, 1))

    def init_state(self, batch: int) -> Cache:
        """An empty cache, in the dtype that keys have here."""
        empty = self.qkv(self.qkv.weight.new_empty(0, self.qkv.in_features))
        return Cache(*(empty.new_empty(batch, self.room, *self.shape[1:]) for _ in "kv"))

    def forward(self, x: Tensor, state: Cache | None = None) -> Tensor:
        """x [B, S, width] → y; the state, if there is one, goes on."""
        qkv = self.qkv(x).unflatten(-1, self.shape)
        if state is None:
            return self.out(tk.attention_qkvpacked(qkv, causal=True).flatten(2))
        q, k, v = qkv.unbind(2)
        return self.out(tk.attention(q, *state.append(k, v), causal=True).flatten(2))

    def step(self, x: Tensor, state: Cache) -> Tensor:
        """x [B, width] → y of that token, which joins the state."""
        return self(x.unsqueeze(1), state).squeeze(1)


class HedgehogAttention(nn.Module):
    """Projections around `nn.HedgehogAttention`: softmax over 64 tokens and more, sums of the rest.

    `step` has a window of exactly 64 tokens, `forward` one of 64 to 127: of a text longer than 64
    tokens they differ by that, and are equal up to there.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.shape = (3, heads, width // heads)
        self.qkv, self.out = (nn.Linear(width, n * width, bias=False) for n in (3, 1))
        self.attention = tk.nn.HedgehogAttention(heads, width // heads, width // heads // 2)

    def init_state(self, batch: int) -> tk.HedgehogState:
        """That of an empty sequence."""
        nothing = self.qkv.weight.new_empty(batch, 0, self.qkv.in_features)
        return self.attention(*self._projected(nothing), output_final_state=True)[1]

    def forward(self, x: Tensor, state: tk.HedgehogState | None = None) -> Any:
        """x [B, S, width] → y; with the state before x, y and the state after it."""
        if state is None:
            return self.out(self.attention(*self._projected(x)).flatten(2))
        y, state = self.attention(*self._projected(x), initial_state=state, output_final_state=True)
        return self.out(y.flatten(2)), state

    def step(self, x: Tensor, state: tk.HedgehogState) -> Tensor:
        """x [B, width] → y of that token; the state is updated in place."""
        return self.out(self.attention.step(*self._projected(x), state).flatten(1))

    def _projected(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.qkv(x).unflatten(-1, self.shape).unbind(-3)


# From width and heads to a mixer. The first four are layers of ours as they are.
MIXERS: dict[str, Callable[[int, int], nn.Module]] = {
    "linear": lambda width, heads: tk.nn.LinearAttention(
        width, heads, feature_map="elu+1", norm="group"
    ),
    "retention": lambda width, heads: tk.nn.LinearAttention(
        width, heads, log_decay="retention", norm="group", gate="silu"
    ),
    "mamba2": lambda width, heads: tk.nn.Mamba2(
        width, d_state=max(64, width // heads), ngroups=heads
    ),
    "based": lambda width, heads: tk.nn.BasedAttention(width, heads),
    "hedgehog": HedgehogAttention,
    "softmax": SoftmaxAttention,
}


def bytes_of(state: Any) -> int:
    """What a state holds."""
    return state.nbytes if isinstance(state, Tensor) else sum(map(bytes_of, state))


@dataclass
class State:
    """What a block carries from token to token: the last one behind the norm, the mixer's state."""

    before: Tensor
    mixer: Any

    def __iter__(self) -> Iterator[Any]:
        return iter((self.before, self.mixer))


class Block(nn.Module):
    """A mixer and a gated feed-forward layer, each behind a norm.

    The mixer sees of half of its channels the token before: so a key and its value meet, and the
    order of tokens matters, in every mixer alike and without positions.
    """

    def __init__(self, mixer: str, width: int, heads: int) -> None:
        super().__init__()
        self.norm = tk.nn.RMSNorm(width, eps=1e-6)
        self.mixer = MIXERS[mixer](width, heads)
        self.add_norm = tk.nn.AddRMSNorm(width, eps=1e-6)
        self.mlp = tk.nn.GatedMLP(width, 2 * width, activation="silu")

    def init_state(self, batch: int) -> State:
        """Of no token."""
        return State(
            self.norm.weight.new_zeros(batch, len(self.norm.weight)), self.mixer.init_state(batch)
        )

    def forward(self, x: Tensor, state: State | None = None) -> Tensor:
        """x [B, S, width] → the same; the state, if there is one, goes on."""
        h = self.norm(x)
        first = torch.zeros_like(h[:, 0]) if state is None else state.before.to(h.dtype)
        mixed = self._mixed(torch.cat([first.unsqueeze(1), h[:, :-1]], 1), h)
        if state is None:
            return self._rest(self.mixer(mixed), x)
        y = self.mixer(mixed, state.mixer)
        state.before = h[:, -1].clone()
        if isinstance(y, tuple):  # else the mixer has updated its state in place
            y, state.mixer = y
        return self._rest(y, x)

    def step(self, x: Tensor, state: State) -> Tensor:
        """x [B, width] → the same; the state goes on."""
        h = self.norm(x)
        y = self.mixer.step(self._mixed(state.before, h), state.mixer)
        state.before = h
        return self._rest(y, x)

    def _mixed(self, before: Tensor, h: Tensor) -> Tensor:
        half = h.shape[-1] // 2
        return torch.cat([before[..., :half], h[..., half:]], -1)

    def _rest(self, y: Tensor, x: Tensor) -> Tensor:
        h, x = self.add_norm(y, x)  # the sum and its norm, in one pass
        return x + self.mlp(h)


class MixerModel(nn.Module):
    """Embedding, blocks of one mixer, and a head."""

    def __init__(
        self, mixer: str, symbols: int, width: int = 64, heads: int = 2, layers: int = 1
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.blocks = nn.ModuleList(Block(mixer, width, heads) for _ in range(layers))
        self.head = nn.Linear(width, symbols, bias=False)

    @torch.no_grad()
    def init_state(self, batch: int) -> list[State]:
        """What `read` and `step` carry on, of each block; under autocast, make it there."""
        return [block.init_state(batch) for block in self.blocks]

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, S] → logits of every position, [B, S, symbols]."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    @torch.no_grad()
    def read(self, tokens: Tensor, states: list[State]) -> Tensor:
        """[B, S], S ≥ 1 → logits of what follows, [B, symbols]; the states go on."""
        x = self.embedding(tokens)
        for block, state in zip(self.blocks, states, strict=True):
            x = block(x, state)
        return self.head(x[:, -1])

    @torch.no_grad()
    def step(self, token: Tensor, states: list[State]) -> Tensor:
        """One token of each sequence, [B] → logits of what follows; the states go on."""
        x = self.embedding(token)
        for block, state in zip(self.blocks, states, strict=True):
            x = block.step(x, state)
        return self.head(x)
