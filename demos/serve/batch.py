"""The texts that are under way: a row each, over one paged cache; a step gives each a token.

    batch = Batch(model, rows=16, capacity=4096, page=64, pages=512)
    logits = batch.add([1, 5, 7], pages=[3])          # a prompt joins
    batch.tokens[:1] = logits.argmax(-1); batch.step()  # a step of all
    batch.remove(0)                                   # a text leaves

Rows are kept dense: the last one takes the place of a row that leaves, which moves its entries of
the page table and no key. On a GPU a step is of 1, 2, 4, 8 … rows, each captured in a CUDA graph.
"""

from functools import partial

import torch
from models.cache import Cache
from models.decoding import OneToken, Packed, captured
from models.llama import Llama, rotary_tables
from torch import Tensor


class Batch:
    """Up to `rows` texts of up to `capacity` tokens each, over `pages` pages of `page` tokens.

    Rows 0 … used − 1 have a text. The newest tokens [rows], which are not in the cache yet, and
    the lengths [rows] of what is (0 without a text) are on the device. `graph=False` leaves the
    steps to Python on a GPU, too.
    """

    @torch.inference_mode()
    def __init__(
        self, model: Llama, rows: int, capacity: int, page: int, pages: int, *, graph: bool = True
    ):
        self.model, self.rows, self.capacity, device = model, rows, capacity, model.device
        self.used = 0
        self.cache = Cache.paged(model, rows, capacity, page, pages)
        self.tables = rotary_tables(model.config, capacity, device)
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self.lengths = torch.zeros(rows, dtype=torch.int32, device=device)
        self._active = torch.zeros(rows, dtype=torch.int32, device=device)
        on_gpu = device.type == "cuda"
        self._buckets = buckets(rows) if on_gpu else range(1, rows + 1)
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        if on_gpu and graph:
            self._capture()

    @torch.inference_mode()
    def add(self, prompt: list[int], pages: list[int]) -> Tensor:
        """Reads a prompt into these pages, row `used` from now on; the logits behind it, [1, V]."""
        row, device = self.used, self.model.device
        self.cache.give(row, pages)
        own = self.cache.rows(row, row + 1)
        packed = Packed(self.model.config, [len(prompt)], device, own)
        last = packed.cu_seqlens[1:] - 1
        logits = self.model(torch.tensor(prompt, device=device), packed, last)
        self.lengths[row] = len(prompt)
        self._active[row] = 1
        self.used += 1
        return logits

    @torch.inference_mode()
    def remove(self, row: int) -> None:
        """Ends a row's text; the last row takes its place."""
        self.used -= 1
        last = self.used
        if row != last:
            for state in (self.tokens, self.lengths, self.cache.table):
                state[row].copy_(state[last])
        self.lengths[last] = self._active[last] = 0

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
