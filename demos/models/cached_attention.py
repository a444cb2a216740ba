"""Attention of a model of Llama's shape over a cache: whole prompts, chunks of one, new tokens.

Each class is an `Attend` (models/llama.py): q and k are turned by their positions, k and v stored,
and q attends to what its sequence has stored up to itself, within the layer's window.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

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


class Chunk:
    """Attention of the next tokens of one sequence, those from `first` to before `end`.

    `cache` is of one row, which holds the tokens before `first`; `tables` are the cosines and sines
    of all positions.
    """

    def __init__(
        self, config: Config, first: int, end: int, tables: tuple[Tensor, Tensor], cache: Cache
    ):
        self.first, self.end, self.cache = first, end, cache
        self.cos, self.sin = (table[first:end] for table in tables)
        self.lengths = sent([end], torch.int32, self.cos.device)
        self.windows = [_window(size) for size in config.windows]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Behind the first chunk keys and values come from the cache: of pages, copied together."""
        q, k = tk.rotary(q[None], k[None], self.cos, self.sin, inplace=True)
        v, window, cache = v[None], self.windows[layer], self.cache
        tk.cache_append(
            k, v, *cache.layers[layer], self.lengths, cache.table, **cache.scales[layer]
        )
        if self.first > 0:
            seen = 0 if window is None else max(0, self.first - window[0])
            k, v = cache.span(layer, seen, self.end)
        else:
            k, v = cache.as_held(layer, k, v)
        return tk.attention(q, k, v, causal=True, window=window)[0]


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


def _window(size: int | None) -> tuple[int, int] | None:
    """A window in our terms, how many tokens are seen to the left of one's own."""
    return None if size is None else (size - 1, 0)
