"""The scheduler: requests queue, join the batch between steps, and leave it when they end.

    engine = Engine(Batch(model, 16, 4096, PAGE, 512), queue=256)
    engine.start()
    engine.submit(Request([1, 5, 7], 20, on_token=print, on_end=print))

One thread computes. A turn of it: who was cancelled leaves; the queue's first request joins, if
there is a row and all pages that it can come to need, and its prompt is read; then each row goes on
by a token. Pages are reserved whole, so that nobody who has begun ever waits or is put out, and the
first in the queue is not overtaken, so that everybody's turn comes.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from batch import Batch
from metrics import Metrics
from models.cache import Pages
from models.sampling import Sampling, choose_each, uniforms
from torch import Tensor

import thunderkittens


class Refusal(Exception):
    """A request that cannot be taken now; the message is one sentence."""


class QueueFull(Refusal):
    """As many requests wait as may."""


class Closed(Refusal):
    """No request is taken any more."""


@dataclass(eq=False)
class Request:
    """A prompt, how to go on, and whom to tell. The callbacks are called by the engine's thread.

    `on_token` gets each token, one that ends the text included; `on_end` is called once, last, with
    an outcome: "stop", "length", "error" or what it was cancelled with.
    """

    prompt: Sequence[int]
    limit: int
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    on_token: Callable[[int], None] = lambda token: None
    on_end: Callable[[str], None] = lambda outcome: None
    pages: list[int] = field(default_factory=list, init=False)
    uniforms: list[float] = field(default_factory=list, init=False)
    count: int = field(default=0, init=False)  # tokens that were generated
    since: float = field(default=0.0, init=False)  # when it came, or its latest token

    @property
    def places(self) -> int:
        """Tokens that the cache may come to hold: the last one is given out, and needs no place."""
        return len(self.prompt) + self.limit - 1


class Engine:
    """Requests on a batch. All methods but `turn` may be called by any thread.

    `queue` is how many may wait; `ends` are the tokens that end a text (None: the model's).
    `on_failure` is called if the model fails, when all requests have ended with "error".
    """

    def __init__(
        self,
        batch: Batch,
        queue: int,
        ends: Sequence[int] | None = None,
        *,
        metrics: Metrics | None = None,
        on_failure: Callable[[], None] = lambda: None,
    ):
        self.batch, self.queue, self.on_failure = batch, queue, on_failure
        self.ends = frozenset(batch.model.config.ends if ends is None else ends)
        self.metrics = metrics or Metrics()
        self.pages = Pages(batch.cache.shape[0])
        self.failure: Exception | None = None
        self._changed = threading.Condition()  # guards the four below
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []  # row by row; written by the engine's thread alone
        self._leaving: dict[Request, str] = {}
        self._deadline: float | None = None  # no request is taken any more, none goes on behind it
        self._thread: threading.Thread | None = None
        self.metrics.waiting.set_function(lambda: len(self._waiting))
        self.metrics.running.set_function(lambda: len(self._running))
        self.metrics.pages_used.set_function(lambda: self.pages.used)
        self.metrics.pages_free.set_function(lambda: self.pages.free)

    @property
    def closed(self) -> bool:
        """Whether no request is taken any more."""
        return self._deadline is not None

    def start(self, backend: str = "auto") -> None:
        """Starts the thread, which computes on this backend of the ops."""
        self._thread = threading.Thread(target=self._run, args=(backend,), name="engine")
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Takes a request.

        Raises:
            ValueError: It could never be served.
            QueueFull: Too many wait.
            Closed: The engine is ending, or has failed.
        """
        self._check(request)
        if request.sampling.temperature != 0:
            request.uniforms = uniforms(request.limit, 1, request.seed)[:, 0].tolist()
        request.since = time.monotonic()
        with self._changed:
            if self._deadline is not None:
                raise Closed("the server is shutting down")
            if len(self._waiting) >= self.queue:
                raise QueueFull(f"{self.queue} requests wait already, and no more may")
            self._waiting.append(request)
            self._changed.notify()

    def cancel(self, request: Request, outcome: str = "cancelled") -> None:
        """Ends a request, before the next step at the latest; one that has ended is left alone."""
        with self._changed:
            if request in self._running:
                self._leaving.setdefault(request, outcome)
                self._changed.notify()
                return
            if request not in self._waiting:
                return
            self._waiting.remove(request)
        self._tell(request, outcome)

    def close(self, grace: float) -> None:
        """Takes no more requests; those that there are have so many seconds to end."""
        with self._changed:
            deadline = time.monotonic() + grace
            self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)
            self._changed.notify()

    def join(self) -> None:
        """Waits until all requests have ended, after `close`."""
        if self._thread is not None:
            self._thread.join()

    @torch.inference_mode()
    def turn(self) -> None:
        """Those who leave; one who joins; a step of all."""
        with self._changed:
            leaving, self._leaving = self._leaving, {}
            late = self._deadline is not None and time.monotonic() >= self._deadline
        for request, outcome in leaving.items():
            self._leave(request, outcome)
        if late:
            self._end_all()
        self._admit()
        if self._running:
            self._next(0, self.batch.step())

    def _run(self, backend: str) -> None:
        try:
            with thunderkittens.backend(backend):
                while self._has_work():
                    self.turn()
        except Exception as error:  # a GPU's errors stay: nothing can be computed any more
            self.failure = error
            self.close(0)
            self._end_all()
            self.on_failure()

    def _has_work(self) -> bool:
        """Waits for something to do; False if nothing will come."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._waiting or self._running or self._deadline is not None
            )
            return bool(self._waiting or self._running)

    def _check(self, request: Request) -> None:
        vocabulary = self.batch.model.config.vocab_size
        if not request.prompt:
            raise ValueError("the prompt has no token")
        if not (0 <= min(request.prompt) and max(request.prompt) < vocabulary):
            raise ValueError(f"the prompt's tokens must be in 0 … {vocabulary - 1}")
        if request.limit < 1:
            raise ValueError(f"there must be at least 1 token to generate, got {request.limit}")
        pages, page = self.batch.cache.shape
        capacity = min(self.batch.capacity, pages * page)
        if request.places > capacity:
            raise ValueError(
                f"a prompt of {len(request.prompt)} tokens and {request.limit} more do not fit "
                f"the context of {capacity}"
            )

    def _admit(self) -> None:
        """Lets the first of the queue join and reads its prompt, if there is place for it."""
        with self._changed:
            if not self._waiting or len(self._running) == self.batch.rows:
                return
            request = self._waiting[0]
            pages = self.pages.take(self.batch.cache.pages_for(request.places))
            if pages is None:
                return
            request.pages = pages
            self._running.append(self._waiting.popleft())
        try:
            logits = self.batch.add(request.prompt, pages)
        except torch.OutOfMemoryError:  # of this prompt alone: the others go on
            self._leave(request, "error")
            return
        self.metrics.prompt_tokens.inc(len(request.prompt))
        self._next(self.batch.used - 1, logits)

    def _next(self, first: int, logits: Tensor) -> None:
        """Chooses a token for each row from `first` on, and ends those that are done."""
        requests = self._running[first:]
        samplings = [request.sampling for request in requests]
        numbers = [r.uniforms[r.count] if r.uniforms else 0.0 for r in requests]
        uniform = torch.tensor(numbers, dtype=torch.float64, device=logits.device)
        chosen = choose_each(logits, samplings, uniform)
        self.batch.tokens[first : first + len(requests)].copy_(chosen)
        now = time.monotonic()
        for request, token in zip(requests, chosen.tolist(), strict=True):
            seconds = self.metrics.following if request.count else self.metrics.first
            seconds.observe(now - request.since)
            self.metrics.tokens.inc()
            request.count, request.since = request.count + 1, now
            request.on_token(token)
            if token in self.ends:
                self._leave(request, "stop")
            elif request.count == request.limit:
                self._leave(request, "length")

    def _leave(self, request: Request, outcome: str) -> None:
        """Takes a request out of the batch, if it is still there, and frees its pages."""
        with self._changed:
            if request not in self._running:
                return
            row = self._running.index(request)
            self._running[row] = self._running[-1]
            self._running.pop()
            self._leaving.pop(request, None)
        if row < self.batch.used:
            self.batch.remove(row)
        self.pages.put_back(request.pages)
        self._tell(request, outcome)

    def _end_all(self) -> None:
        """Ends all requests with an error, after `close`. The batch is left as it is."""
        with self._changed:
            running, waiting = [*self._running], [*self._waiting]
            self._running.clear()
            self._waiting.clear()
            self._leaving.clear()
        for request in running:
            self.pages.put_back(request.pages)
        for request in running + waiting:
            self._tell(request, "error")

    def _tell(self, request: Request, outcome: str) -> None:
        self.metrics.ended(outcome)
        request.on_end(outcome)
