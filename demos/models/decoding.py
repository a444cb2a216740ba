"""Text from a model of Llama's shape: prompts packed, then a token at a time over a cache.

    decoder = Decoder(model, rows=2, capacity=100)
    for tokens in decoder.generate([[1, 5, 7], [3]], limit=20):
        ...  # the next token of each row; None of one that has ended

Lengths and who has ended are on the device, so a step is one CUDA graph, whatever the lengths: rows
need no padding, and one that has ended costs nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from models.cache import Cache
from models.cached_attention import OneToken, Packed
from models.llama import Llama, rotary_tables
from models.sampling import Sampling, choose, uniforms
from models.transfer import fetched

Result = TypeVar("Result")


class DecodingError(ValueError):
    """Prompts cannot be gone on from; the message is one sentence."""


class Decoder:
    """A batch of `rows` texts, each of up to `capacity` tokens in the cache.

    On a GPU the step is captured once, here; `graph=False` leaves it to Python. With `page` the
    cache is of pages of so many tokens, else each row is one piece; with `narrow` it is of
    float8_e4m3fn. The state of a step is on the device: the newest tokens [rows], lengths [rows] (0
    for a row that has ended or never began) and who is active.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Llama,
        rows: int,
        capacity: int,
        sampling: Sampling | None = None,
        *,
        ends: Sequence[int] | None = None,
        graph: bool = True,
        page: int | None = None,
        narrow: bool = False,
    ):
        self.model, self.rows, self.capacity = model, rows, capacity
        self.sampling, device = sampling or Sampling(), model.device
        if page is None:
            self.cache = Cache.static(model, rows, capacity, narrow=narrow)
        else:
            self.cache = Cache.paged(model, rows, capacity, page, narrow=narrow)
        self.tables = rotary_tables(model.config, capacity, device)
        self.ends = tuple(model.config.ends if ends is None else ends)
        self._ends = torch.tensor(self.ends, dtype=torch.int64, device=device)
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self.lengths = torch.zeros(rows, dtype=torch.int32, device=device)
        self.active = torch.zeros(rows, dtype=torch.int32, device=device)
        self._uniforms = torch.zeros(capacity + 1, rows, dtype=torch.float64, device=device)
        self._count = torch.zeros(1, dtype=torch.int64, device=device)  # tokens that were chosen
        self._graph = None
        if device.type == "cuda" and graph:
            self._capture()

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        limit: int,
        seed: int = 0,
        on_layer: Callable[[int], None] | None = None,
    ) -> Iterator[list[int | None]]:
        """Yields the next token of each row, up to `limit` times, or until all rows have ended.

        A row ends with a token of `ends`; from then on, and if its prompt is empty, it gives None.
        The step after next is under way while a token is looked at. Closing the iterator waits for
        it and empties the cache.

        Raises:
            DecodingError: The prompts do not fit.
        """
        self._check(prompts, limit)
        going = [bool(prompt) for prompt in prompts]
        try:
            if self.sampling.temperature != 0:
                self._uniforms[:limit].copy_(uniforms(limit, self.rows, seed))
            self._advance(self.prefill(prompts, on_layer))
            coming = fetched(self.tokens)
            for count in range(1, limit + 1):
                ready = coming
                if count < limit:
                    self.step()
                    coming = fetched(self.tokens)
                tokens = ready()
                yield [token if on else None for token, on in zip(tokens, going, strict=True)]
                going = [
                    on and token not in self.ends for token, on in zip(tokens, going, strict=True)
                ]
                if not any(going):
                    return
        finally:
            self.reset()

    @torch.inference_mode()
    def prefill(
        self, prompts: Sequence[Sequence[int]], on_layer: Callable[[int], None] | None = None
    ) -> Tensor:
        """Reads the prompts into the cache; the logits behind each, [rows, vocab_size]."""
        device = self.model.device
        lengths = [len(prompt) for prompt in prompts]
        packed = Packed(self.model.config, lengths, device, self.cache, on_layer)
        tokens = torch.tensor([token for prompt in prompts for token in prompt], device=device)
        last = (packed.cu_seqlens[1:] - 1).clamp(min=0)
        logits = self.model(tokens, packed, last)
        self.lengths.copy_(packed.lengths)
        self.active.copy_(packed.lengths > 0)
        return logits

    @torch.inference_mode()
    def step(self) -> None:
        """Goes on by one token, in every row that is active."""
        if self._graph is None:
            self._step()
        else:
            self._graph.replay()

    def reset(self) -> None:
        """Forgets all rows, and waits for what is under way."""
        for state in (self.lengths, self.active, self._count):
            with torch.inference_mode():
                state.zero_()
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)

    def bytes_of_step(self, lengths: Sequence[int]) -> int:
        """What a step has to move at least, its rows then being of these lengths (0: ended).

        Weights once, of the embedding the rows' own (all of it where it is the head too), keys and
        values up to each layer's window, and the new ones.
        """
        config, size = self.model.config, self.model.dtype.itemsize
        tensors = (*self.model.parameters(), *self.model.buffers())
        weights = sum(tensor.nbytes for tensor in tensors)
        if not config.tie_word_embeddings:
            weights -= size * config.vocab_size * config.hidden_size
            weights += size * self.rows * config.hidden_size
        keys = sum(
            min(length, window or length) + 1
            for window in config.windows
            for length in lengths
            if length
        )
        return weights + self.cache.bytes_of_token * keys

    def _check(self, prompts: Sequence[Sequence[int]], limit: int) -> None:
        if len(prompts) != self.rows:
            raise DecodingError(f"there must be {self.rows} prompts, got {len(prompts)}")
        if not any(prompts):
            raise DecodingError("all prompts are empty")
        if limit < 1:
            raise DecodingError(f"the limit must be at least 1 token, got {limit}")
        vocabulary = self.model.config.vocab_size
        for row, prompt in enumerate(prompts):
            if prompt and not (0 <= min(prompt) and max(prompt) < vocabulary):
                raise DecodingError(f"prompt {row}: its tokens must be in 0 … {vocabulary - 1}")
            # The last token is given out, and needs no place.
            if len(prompt) + limit - 1 > self.capacity:
                raise DecodingError(
                    f"prompt {row}: {len(prompt)} tokens and {limit} more do not fit a cache of "
                    f"{self.capacity}"
                )

    def _step(self) -> None:
        """The forward of one token of each row: what is captured."""
        self.lengths.add_(self.active)
        attend = OneToken(self.model.config, self.lengths, self.tables, self.cache)
        self._advance(self.model(self.tokens, attend))

    def _advance(self, logits: Tensor) -> None:
        """Chooses the next token of active rows, and ends those whose token says so."""
        uniform = self._uniforms.index_select(0, self._count)[0]
        chosen = choose(logits, self.sampling, uniform)
        self.tokens.copy_(torch.where(self.active.bool(), chosen, self.tokens))
        self._count.add_(1)
        if self.ends:
            self.active.mul_((self.tokens[:, None] != self._ends).all(dim=1))
            self.lengths.mul_(self.active)

    def _capture(self) -> None:
        """Captures the step while no row is active: what warms up writes nothing to the cache."""
        self._graph, _ = captured(self._step, self.model.device)
        self._count.zero_()


@torch.inference_mode()
def full_logits(
    model: Llama, prompts: Sequence[Sequence[int]], last: bool = False
) -> tuple[Tensor, ...]:
    """Logits of each prompt's tokens, [tokens, vocab_size], or its last one's, without a cache."""
    lengths = [len(prompt) for prompt in prompts]
    tokens = [token for prompt in prompts for token in prompt]
    packed = Packed(model.config, lengths, model.device)
    rows = packed.cu_seqlens[1:] - 1 if last else None
    logits = model(torch.tensor(tokens, device=model.device), packed, rows)
    return logits.split(1 if last else lengths)


def captured(
    step: Callable[[], Result], device: torch.device, pool: tuple[int, int] | None = None
) -> tuple[torch.cuda.CUDAGraph, Result]:
    """A CUDA graph of a step, after one that warms up, and the step's result, which it writes.

    `pool` is the memory of another graph, to be shared with it.
    """
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            result = step()
    return graph, result
