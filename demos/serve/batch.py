"""The texts that are under way: a row each, over one paged cache; a step gives each a token.

    batch = Batch(model, rows=16, capacity=4096, page=64, pages=512)
    prompt = batch.begin([1, 5, 7], pages=[3])
    logits = batch.read(prompt, 512)                  # up to 512 of its tokens; None: not yet all
    batch.add(prompt, logits.argmax(-1))              # it joins, with its first token
    logits = batch.step()                             # a step of all
    batch.go_on(logits.argmax(-1)); batch.remove(0)   # their next tokens; a text leaves

Rows are kept dense: the last one takes the place of a row that leaves, which moves its entries of
the page table and no key. On a GPU a step is of 1, 2, 4, 8 … rows, each captured in a CUDA graph,
and nothing here waits for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from models.cache import Cache
from models.cached_attention import Chunk, OneToken
from models.decoding import captured
from models.llama import Llama, rotary_tables
from models.transfer import sent
from torch import Tensor


@dataclass(eq=False)
class Prompt:
    """A prompt on its way into pages of its own; it has no row until it is whole."""

    tokens: Sequence[int]
    cache: Cache  # a row in these pages
    read: int = 0  # how many of the tokens are there


class Batch:
    """Up to `rows` texts of up to `capacity` tokens each, over `pages` pages of `page` tokens.

    Rows 0 … used − 1 have a text. The newest tokens [rows], which are not in the cache yet, and
    the lengths [rows] of what is (0 without a text) are on the device. With `narrow` the cache is
    of float8_e4m3fn. `graph=False` leaves the steps to Python on a GPU, too.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Llama,
        rows: int,
        capacity: int,
        page: int,
        pages: int,
        *,
        narrow: bool = False,
        graph: bool = True,
    ):
        self.model, self.rows, self.capacity, device = model, rows, capacity, model.device
        self.used = 0
        self.cache = Cache.paged(model, rows, capacity, page, pages, narrow=narrow)
        self.tables = rotary_tables(model.config, capacity, device)
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self.lengths = torch.zeros(rows, dtype=torch.int32, device=device)
        self._active = torch.zeros(rows, dtype=torch.int32, device=device)
        on_gpu = device.type == "cuda"
        self._buckets = buckets(rows) if on_gpu else range(1, rows + 1)
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        if on_gpu and graph:
            self._capture()

    def begin(self, tokens: Sequence[int], pages: Sequence[int]) -> Prompt:
        """A prompt that is to lie in these pages, of which nothing is read yet."""
        return Prompt(tokens, self.cache.in_pages(pages))

    @torch.inference_mode()
    def read(self, prompt: Prompt, most: int) -> Tensor | None:
        """Reads up to so many further tokens; behind the last one the logits, [1, V]."""
        first, end = prompt.read, min(prompt.read + most, len(prompt.tokens))
        whole, device = end == len(prompt.tokens), self.model.device
        tokens = sent(prompt.tokens[first:end], torch.int64, device)
        attend = Chunk(self.model.config, first, end, self.tables, prompt.cache)
        last = sent([end - first - 1] if whole else [], torch.int64, device)
        logits = self.model(tokens, attend, last)
        prompt.read = end
        return logits if whole else None

    @torch.inference_mode()
    def add(self, prompt: Prompt, token: Tensor) -> None:
        """Row `used` is from now on that of a prompt that has been read, and of its first token."""
        row = self.used
        self.cache.give(row, prompt.cache)
        self.tokens[row : row + 1].copy_(token)
        self.lengths[row].fill_(prompt.read)  # an assignment would wait for the GPU
        self._active[row].fill_(1)
        self.used += 1

    @torch.inference_mode()
    def go_on(self, tokens: Tensor) -> None:
        """These are the newest tokens [used], which the next step takes."""
        self.tokens[: self.used].copy_(tokens)

    @torch.inference_mode()
    def remove(self, row: int) -> None:
        """Ends a row's text; the last row takes its place."""
        self.used -= 1
        last = self.used
        if row != last:
            for state in (self.tokens, self.lengths, self.cache.table):
                state[row].copy_(state[last])
        self.lengths[last].zero_()
        self._active[last].zero_()

    @torch.inference_mode()
    def step(self) -> Tensor:
        """Takes the newest token of each row into the cache; the logits behind, [used, V].

        They are valid until the next call.
        """
        rows = next(rows for rows in self._buckets if rows >= self.used)
        if not self._graphs:
            return self._forward(rows)[: self.used]
        graph, logits = self._graphs[rows]
        graph.replay()
        return logits[: self.used]

    def _forward(self, rows: int) -> Tensor:
        """A step of the first rows, with a text or without."""
        lengths = self.lengths[:rows].add_(self._active[:rows])
        attend = OneToken(self.model.config, lengths, self.tables, self.cache.rows(0, rows))
        return self.model(self.tokens[:rows], attend)

    def _capture(self) -> None:
        """Captures while no row has a text: what warms up writes nothing to the cache.

        The largest comes first: the others fit the memory that it takes. They may share it, as one
        step's logits are not needed when the next begins.
        """
        pool = None
        for rows in reversed(self._buckets):
            graph, logits = captured(partial(self._forward, rows), self.model.device, pool)
            pool = graph.pool() if pool is None else pool
            self._graphs[rows] = (graph, logits)


def buckets(rows: int) -> list[int]:
    """The numbers of rows whose steps are captured: powers of two, and all rows."""
    powers = [1 << n for n in range(rows.bit_length())]
    return [n for n in powers if n < rows] + [rows]
