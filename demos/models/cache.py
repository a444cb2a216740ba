"""Where keys and values of running texts lie: a row each, or pages of a memory that all share.

cache = Cache.paged(model, rows=2, capacity=100, page=64, pages=5)
pages = Pages(5)
cache.give(0, cache.in_pages(pages.take(cache.pages_for(80))))  # row 0 has place for 80 tokens
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.llama import Llama
from models.transfer import sent

PAGE = 64
"""Tokens of a page, where nobody says otherwise."""


class Cache:
    """Keys and values of every layer, [rows, capacity, Hk, D] each.

    With a `table`, int32 [rows, M], they are pages, [pages, page, Hk, D], and entry [r, j] is the
    page of the tokens from j · page on of row r. Entries of a row that has none yet are not read.
    """

    def __init__(self, layers: list[tuple[Tensor, Tensor]], table: Tensor | None = None):
        self.layers, self.table = layers, table

    @classmethod
    def static(cls, model: Llama, rows: int, capacity: int) -> "Cache":
        """Each row with place for `capacity` tokens."""
        return cls(_memory(model, rows, capacity))

    @classmethod
    def paged(
        cls, model: Llama, rows: int, capacity: int, page: int, pages: int | None = None
    ) -> "Cache":
        """Rows of up to `capacity` tokens, in so many pages of `page` tokens, nobody's as yet.

        None: as many as the rows can need, and each row has its own.
        """
        of_row = -(-capacity // page)
        table = torch.zeros(rows, of_row, dtype=torch.int32, device=model.device)
        if pages is None:
            pages = table.numel()
            table.copy_(torch.arange(pages).view_as(table))
        return cls(_memory(model, pages, page), table)

    def rows(self, first: int, end: int) -> "Cache":
        """A view of the rows from `first` to before `end`."""
        if self.table is not None:
            return Cache(self.layers, self.table[first:end])
        return Cache([(keys[first:end], values[first:end]) for keys, values in self.layers])

    @property
    def shape(self) -> tuple[int, int]:
        """Of a cache with a table: how many pages there are, and the tokens of each."""
        pages, page = self.layers[0][0].shape[:2]
        return pages, page

    def pages_for(self, tokens: int) -> int:
        """How many pages so many tokens take."""
        return -(-tokens // self.shape[1])

    def in_pages(self, pages: Sequence[int]) -> "Cache":
        """A row in these pages, in their order, which is none of this cache's own."""
        return Cache(self.layers, sent([pages], torch.int32, self.table.device))

    def give(self, row: int, other: "Cache") -> None:
        """Lets a row lie where the one row of another cache of the same pages does."""
        self.table[row, : other.table.shape[1]].copy_(other.table[0])

    def span(self, layer: int, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Keys and values of row 0 from token `first` or somewhat before it to before `end`.

        [1, tokens, Hk, D] each; of pages a copy.
        """
        if self.table is None:
            return tuple(cache[:1, first:end] for cache in self.layers[layer])
        page = self.shape[1]
        begin = first // page
        pages = self.table[0, begin : self.pages_for(end)]
        return tuple(
            cache.index_select(0, pages).flatten(0, 1)[None, : end - begin * page]
            for cache in self.layers[layer]
        )


class Pages:
    """Which pages are free: a list, whose end is given out first."""

    def __init__(self, count: int):
        self.count = count
        self._free = list(reversed(range(count)))
        self._used: set[int] = set()

    @property
    def free(self) -> int:
        """How many are free."""
        return len(self._free)

    @property
    def used(self) -> int:
        """How many are not."""
        return len(self._used)

    def take(self, count: int) -> list[int] | None:
        """So many pages, or None if there are not as many."""
        if count > len(self._free):
            return None
        taken = [self._free.pop() for _ in range(count)]
        self._used.update(taken)
        return taken

    def put_back(self, pages: Sequence[int]) -> None:
        """Frees pages that were taken.

        Raises:
            ValueError: One is not in use.
        """
        if len({*pages}) != len(pages) or not self._used.issuperset(pages):
            raise ValueError(f"pages {sorted(pages)} are not all in use, each once")
        self._used.difference_update(pages)
        self._free.extend(reversed(pages))


def _memory(model: Llama, *lengths: int) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of every layer, [*lengths, Hk, D] each, of one tensor."""
    config = model.config
    shape = (config.num_hidden_layers, 2, *lengths, config.heads[1], config.head_dim)
    memory = torch.empty(shape, dtype=model.dtype, device=model.device)
    return [tuple(layer) for layer in memory]
