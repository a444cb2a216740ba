"""Where keys and values of running texts lie: a row each, or pages of a memory that all share.

cache = Cache.paged(model, rows=2, capacity=100, page=64, pages=5)
pages = Pages(5)
cache.give(0, cache.in_pages(pages.take(cache.pages_for(80))))  # row 0 has place for 80 tokens
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.cache_scales import LARGEST, scales_of
from models.llama import Llama
from models.transfer import sent

PAGE = 64
"""Tokens of a page, where nobody says otherwise."""


class Cache:
    """Keys and values of every layer, [rows, capacity, Hk, D] each.

    With a `table`, int32 [rows, M], they are pages, [pages, page, Hk, D], and entry [r, j] is the
    page of the tokens from j · page on of row r. Entries of a row that has none yet are not read.

    The dtype is the model's, or float8_e4m3fn (`narrow`). Then a layer has `scales` of its key
    heads, arguments of the ops (models/cache_scales.py), and whoever attends, to keys that it has
    just computed too, sees them as the cache holds them, in `dtype`: so a text does not depend on
    how its prompt is cut.
    """

    def __init__(
        self,
        layers: list[tuple[Tensor, Tensor]],
        table: Tensor | None = None,
        scales: list[dict[str, Tensor]] | None = None,
        dtype: torch.dtype | None = None,
    ):
        self.layers, self.table = layers, table
        self.scales = scales or [{} for _ in layers]
        self.narrow = scales is not None
        self.dtype = dtype or layers[0][0].dtype

    @classmethod
    def static(cls, model: Llama, rows: int, capacity: int, *, narrow: bool = False) -> "Cache":
        """Each row with place for `capacity` tokens."""
        layers, scales = _memory(model, narrow, rows, capacity)
        return cls(layers, None, scales, model.dtype)

    @classmethod
    def paged(
        cls,
        model: Llama,
        rows: int,
        capacity: int,
        page: int,
        pages: int | None = None,
        *,
        narrow: bool = False,
    ) -> "Cache":
        """Rows of up to `capacity` tokens, in so many pages of `page` tokens, nobody's as yet.

        None: as many as the rows can need, and each row has its own.
        """
        of_row = -(-capacity // page)
        table = torch.zeros(rows, of_row, dtype=torch.int32, device=model.device)
        if pages is None:
            pages = table.numel()
            table.copy_(torch.arange(pages).view_as(table))
        layers, scales = _memory(model, narrow, pages, page)
        return cls(layers, table, scales, model.dtype)

    def rows(self, first: int, end: int) -> "Cache":
        """A view of the rows from `first` to before `end`."""
        if self.table is not None:
            return self._of(self.layers, self.table[first:end])
        return self._of([(k[first:end], v[first:end]) for k, v in self.layers], None)

    def _of(self, layers: list[tuple[Tensor, Tensor]], table: Tensor | None) -> "Cache":
        """Another one of the same memory."""
        return Cache(layers, table, self.scales if self.narrow else None, self.dtype)

    @property
    def bytes_of_token(self) -> int:
        """Of a token's keys and values in one layer."""
        keys = self.layers[0][0]
        return 2 * keys[0, 0].numel() * keys.element_size()

    @property
    def nbytes(self) -> int:
        """Of all keys and values."""
        return sum(t.nbytes for layer in self.layers for t in layer)

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
        return self._of(self.layers, sent([pages], torch.int32, self.table.device))

    def give(self, row: int, other: "Cache") -> None:
        """Lets a row lie where the one row of another cache of the same pages does."""
        self.table[row, : other.table.shape[1]].copy_(other.table[0])

    def span(self, layer: int, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Keys and values of row 0 from token `first` or somewhat before it to before `end`.

        [1, tokens, Hk, D] each, of `dtype`; of pages, and of a narrow cache, a copy.
        """
        if self.table is None:
            found = [cache[:1, first:end] for cache in self.layers[layer]]
        else:
            page = self.shape[1]
            begin = first // page
            pages = self.table[0, begin : self.pages_for(end)]
            found = [
                _pages_of(cache, pages).flatten(0, 1)[None, : end - begin * page]
                for cache in self.layers[layer]
            ]
        return self._wide(layer, *found)

    def as_held(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """New keys and values [.., Hk, D] as `span` would give them back, once they are stored."""
        if not self.narrow:
            return k, v
        held = [
            (t.float() / scale[:, None]).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
            for t, scale in zip((k, v), self.scales[layer].values(), strict=True)
        ]
        return self._wide(layer, *held)

    def _wide(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values as they lie in the cache, in `dtype`."""
        if not self.narrow:
            return k, v
        scales = [scale[:, None] for scale in self.scales[layer].values()]
        return tuple(
            (t.to(self.dtype) * scale).to(self.dtype)
            for t, scale in zip((k, v), scales, strict=True)
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


def _memory(
    model: Llama, narrow: bool, *lengths: int
) -> tuple[list[tuple[Tensor, Tensor]], list[dict[str, Tensor]] | None]:
    """Keys and values of every layer, [*lengths, Hk, D] each, of one tensor; scales, if narrow."""
    config, dtype = model.config, torch.float8_e4m3fn if narrow else model.dtype
    shape = (config.num_hidden_layers, 2, *lengths, config.heads[1], config.head_dim)
    memory = torch.empty(shape, dtype=dtype, device=model.device)
    return [tuple(layer) for layer in memory], scales_of(model) if narrow else None


def _pages_of(cache: Tensor, pages: Tensor) -> Tensor:
    """Some pages of a cache, of which torch indexes no float8."""
    if cache.element_size() > 1:
        return cache.index_select(0, pages)
    return cache.view(torch.uint8).index_select(0, pages).view(cache.dtype)
