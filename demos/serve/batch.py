"""The texts that are under way: a row each, over one paged cache; a step gives each a token.

    batch = Batch(model, rows=16, capacity=4096, page=64, pages=512)
    prompts = [Prompt([1, 5, 7], pages=[3]), Prompt([2], pages=[0])]
    logits = batch.read(prompts, 512)                 # up to 512 of their tokens; a step of all
    batch.add(prompts, logits.argmax(-1))             # who is whole joins, with its first token
    logits = batch.step()                             # a step of all
    batch.go_on(logits.argmax(-1)); batch.remove(0)   # their next tokens; a text leaves

Rows are kept dense: the last one takes the place of a row that leaves, which moves its entries of
the page table and no key. On a GPU a step is of 1, 2, 4, 8 … rows, each captured in a CUDA graph,
but for one that reads prompts; and nothing here waits for it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from models.cache import Cache
from models.cached_attention import Chunks, Mixed, OneToken, Part
from models.decoding import captured
from models.llama import Llama, rotary_tables
from models.transfer import sent
from torch import Tensor


@dataclass(eq=False)
class Prompt:
    """A prompt on its way into pages of its own; it has no row until it is whole."""

    tokens: Sequence[int]
    pages: Sequence[int]
    read: int = 0  # how many of the tokens are there

    @property
    def rest(self) -> int:
        """How many of the tokens are not."""
        return len(self.tokens) - self.read


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

    @torch.inference_mode()
    def read(self, prompts: Iterable[Prompt], most: int) -> Tensor:
        """A step that reads up to so many further tokens, first those of the first prompt.

        Returns the logits behind each row, and behind each prompt that is whole with that,
        [used + W, V].
        """
        parts, tokens, last, device = [], [], [], self.model.device
        for prompt in prompts:
            end = prompt.read + min(most - len(tokens), prompt.rest)
            if end > prompt.read:
                parts.append((prompt, Part(prompt.pages, prompt.read, end)))
                tokens += prompt.tokens[prompt.read : end]
            if end == len(prompt.tokens):
                last.append(len(tokens) - 1)
        used, config = self.used, self.model.config
        attend = Chunks(config, [part for _, part in parts], self.tables, self.cache)
        taken = sent(tokens, torch.int64, device)
        lengths = self.lengths[:used] + 1
        if used:
            rows = OneToken(config, lengths, self.tables, self.cache.rows(0, used))
            attend, taken = Mixed(rows, attend), torch.cat([self.tokens[:used], taken])
        behind = sent([*range(used), *(used + row for row in last)], torch.int64, device)
        logits = self.model(taken, attend, behind)
        self.lengths[:used].copy_(lengths)  # only now: memory may have been too small
        for prompt, part in parts:
            prompt.read = part.end
        return logits

    @torch.inference_mode()
    def add(self, prompts: Sequence[Prompt], tokens: Tensor) -> None:
        """Rows from `used` on are now of these prompts, which are whole, and their first tokens."""
        rows = slice(self.used, self.used + len(prompts))
        self.cache.give(self.used, [prompt.pages for prompt in prompts])
        self.tokens[rows].copy_(tokens)
        read = [prompt.read for prompt in prompts]
        self.lengths[rows].copy_(sent(read, torch.int32, self.model.device))
        self._active[rows].fill_(1)
        self.used += len(prompts)

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
