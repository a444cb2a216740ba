"""Attention of a model of Llama's shape over a cache: whole prompts, chunks of one, new tokens.

Each class is an `Attend` (models/llama.py): q and k are turned by their positions, k and v stored,
and q attends to what its sequence has stored up to itself, within the layer's window.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

import thunderkittens as tk
from models.cache import Cache
from models.llama import Config, rotary_tables
from models.transfer import sent


class Packed:
    """Attention of sequences that lie one behind the other, whole; an `Attend`.

    `lengths` are those of the sequences. With a cache, keys and values are left there, those of
    sequence i in row i. `on_layer` is called before each layer, with its number.
    """

    def __init__(
        self,
        config: Config,
        lengths: Sequence[int],
        device: torch.device,
        cache: Cache | None = None,
        on_layer: Callable[[int], None] | None = None,
    ):
        self.longest, self.cache, self.on_layer = max(lengths), cache, on_layer
        self.windows = [_window(size) for size in config.windows]
        self.cos, self.sin = rotary_tables(config, self.longest, device)
        self.bounds = [0, *accumulate(lengths)]
        self.cu_seqlens = torch.tensor(self.bounds, dtype=torch.int32, device=device)
        self.lengths = self.cu_seqlens.diff()

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Turned by their positions, stored, and causal within their sequence."""
        if self.on_layer is not None:
            self.on_layer(layer)
        packing = {"cu_seqlens": self.cu_seqlens, "max_seqlen": self.longest}
        q, k = tk.rotary(q, k, self.cos, self.sin, inplace=True, **packing)
        if self.cache is not None:
            self._store(layer, k, v)
            k, v = self.cache.as_held(layer, k, v)
        options = {"causal": True, "window": self.windows[layer]}
        if len(self.bounds) == 2:
            return tk.attention(q[None], k[None], v[None], **options)[0]
        for side in ("q", "k"):
            options |= {f"cu_seqlens_{side}": self.cu_seqlens, f"max_seqlen_{side}": self.longest}
        return tk.attention(q, k, v, **options)

    def _store(self, layer: int, k: Tensor, v: Tensor) -> None:
        for row, (begin, end) in enumerate(zip(self.bounds, self.bounds[1:], strict=False)):
            if begin < end:
                own, new = self.cache.rows(row, row + 1), (k[None, begin:end], v[None, begin:end])
                lengths, scales = self.lengths[row : row + 1], own.scales[layer]
                tk.cache_append(*new, *own.layers[layer], lengths, own.table, **scales)


class Part(NamedTuple):
    """Tokens of a sequence that lies in these pages: those from `first` to before `end`."""

    pages: Sequence[int]
    first: int
    end: int


class Chunks:
    """Attention of the next tokens of several sequences, one behind the other; an `Attend`.

    The tokens of each of `new` are new; those of its sequence before them are in the paged cache.
    `tables` are the cosines and sines of all positions.

    All of it is one call of each op, whatever the sequences are. Keys and values come from the
    cache, copied together out of their slots, unless all sequences are at their beginning.
    """

    def __init__(
        self, config: Config, new: Sequence[Part], tables: tuple[Tensor, Tensor], cache: Cache
    ):
        self.cache, device = cache, cache.table.device
        self.cos, self.sin = tables
        self.firsts = sent([part.first for part in new], torch.int32, device)
        self.new = _Packing(new, cache)
        self.ones = torch.ones_like(self.new.slots)
        self.windows = [_window(size) for size in config.windows]
        self.seen = {window: self._seen(new, window) for window in {*self.windows}}

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Turned by their positions, stored, and causal within their sequence."""
        window, cache, new = self.windows[layer], self.cache, self.new
        packing = {"cu_seqlens": new.cu_seqlens, "max_seqlen": new.longest}
        turn = {"offsets": self.firsts, "inplace": True, **packing}
        q, k = tk.rotary(q, k, self.cos, self.sin, **turn)
        # Each token goes where it belongs as if it were a sequence, and its slot a page.
        slots, table = [t.flatten(0, 1)[:, None] for t in cache.layers[layer]], new.slots[:, None]
        tk.cache_append(k[:, None], v[:, None], *slots, self.ones, table, **cache.scales[layer])
        seen = self.seen[window]
        if seen is new:
            k, v = cache.as_held(layer, k, v)
        else:
            k, v = cache.held(layer, seen.slots)
        options = {"causal": True, "window": window}
        if len(self.firsts) == 1:
            return tk.attention(q[None], k[None], v[None], **options)[0]
        for side, packed in (("q", new), ("k", seen)):
            options[f"cu_seqlens_{side}"] = packed.cu_seqlens
            options[f"max_seqlen_{side}"] = packed.longest
        return tk.attention(q, k, v, **options)

    def _seen(self, new: Sequence[Part], window: tuple[int, int] | None) -> "_Packing":
        """What new tokens see through a window."""
        seen = [
            part._replace(first=0 if window is None else max(0, part.first - window[0]))
            for part in new
        ]
        return self.new if seen == [*new] else _Packing(seen, self.cache)


class _Packing:
    """Parts one behind the other: where in the cache their tokens are, and where each begins."""

    def __init__(self, parts: Sequence[Part], cache: Cache):
        lengths, device = [part.end - part.first for part in parts], cache.table.device
        self.longest = max(lengths)
        self.cu_seqlens = sent([0, *accumulate(lengths)], torch.int32, device)
        self.slots = sent(torch.cat([cache.slots(*part) for part in parts]), torch.int32, device)


class OneToken:
    """Attention of one new token of each row over the cache; an `Attend`.

    `lengths`, int32 [rows], count the new tokens. A row of length 0 is left alone, and gives 0.
    """

    def __init__(
        self, config: Config, lengths: Tensor, tables: tuple[Tensor, Tensor], cache: Cache
    ):
        self.lengths, self.positions, self.cache = lengths, lengths - 1, cache
        self.cos, self.sin = tables
        self.windows = [_window(size) for size in config.windows]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q turned; k turned and stored with v; and attention to what the row has stored so far."""
        keys, values = self.cache.layers[layer]
        held = {"page_table": self.cache.table, **self.cache.scales[layer]}
        turn = {"cos": self.cos, "sin": self.sin}
        tk.cache_append(k[:, None], v[:, None], keys, values, self.lengths, **held, **turn)
        q, _ = tk.rotary(q[:, None], None, **turn, offsets=self.positions)
        options = {"seqlens": self.lengths, "window": self.windows[layer], **held}
        return tk.attention_decode(q, keys, values, **options)[:, 0]


class Mixed:
    """Attention of one new token of each row, and behind them of chunks; an `Attend`."""

    def __init__(self, rows: OneToken, chunks: Chunks):
        self.rows, self.chunks, self.count = rows, chunks, len(rows.lengths)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Each by its own."""
        ways = (self.rows, slice(None, self.count)), (self.chunks, slice(self.count, None))
        return torch.cat([attend(layer, q[part], k[part], v[part]) for attend, part in ways])


def _window(size: int | None) -> tuple[int, int] | None:
    """A window in our terms, how many tokens are seen to the left of one's own."""
    return None if size is None else (size - 1, 0)
