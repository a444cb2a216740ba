"""The scheduler: requests queue, join the batch between steps, and leave it when they end.

    engine = Engine(Batch(model, 16, 4096, PAGE, 512), queue=256)
    engine.start()
    engine.submit(Request([1, 5, 7], 20, on_token=print, on_end=print))

One thread computes. A turn of it: who was cancelled leaves; of the prompt of the queue's first, if
there is a row and all pages that it can come to need, up to `chunk` tokens are read; then each row
goes on by a token. So a long prompt holds nobody up for longer than a chunk of it takes. Pages are
reserved whole, so that nobody who has begun ever waits or is put out, and the first in the queue is
not overtaken, so that everybody's turn comes.

On a GPU the thread queues a step before it looks at the tokens of the one before: they stay on the
device for the next step, and a copy comes to the host meanwhile. So the device need not wait for
the host. A text that ended by its token has then been in one step too many, and what that gave is
dropped; one that ends by its length leaves with its last step.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import torch
from batch import Batch, Prompt
from metrics import Metrics
from models.cache import Pages
from models.sampling import choose_each, uniforms
from models.transfer import fetched, sent
from request import Closed, QueueFull, Request
from torch import Tensor

import thunderkittens

CHUNK = 512
"""Tokens of a prompt that are read between two steps, where nobody says otherwise."""

Chosen = tuple[list[Request], Callable[[], list[int]]]
"""Requests, and how to wait for the token that was chosen for each."""


class Engine:
    """Requests on a batch. All methods but `turn` may be called by any thread.

    `queue` is how many may wait; `ends` are the tokens that end a text (None: the model's); `chunk`
    is how many tokens of a prompt are read between two steps; `lag` is how many results of the
    device stay there while the next is queued (None: 1 on a GPU, 0 on a CPU). `on_failure` is
    called if the model fails, when all requests have ended with "error".
    """

    def __init__(
        self,
        batch: Batch,
        queue: int,
        ends: Sequence[int] | None = None,
        *,
        chunk: int = CHUNK,
        lag: int | None = None,
        metrics: Metrics | None = None,
        on_failure: Callable[[], None] = lambda: None,
    ):
        self.batch, self.queue, self.chunk, self.on_failure = batch, queue, chunk, on_failure
        self.lag = int(batch.model.device.type == "cuda") if lag is None else lag
        self.ends = frozenset(batch.model.config.ends if ends is None else ends)
        self.metrics = metrics or Metrics()
        self.pages = Pages(batch.cache.shape[0])
        self.failure: Exception | None = None
        self._changed = threading.Condition()  # guards the four below
        self._waiting: deque[Request] = deque()
        self._begun: set[Request] = set()  # that have not ended
        self._leaving: dict[Request, str] = {}
        self._deadline: float | None = None  # no request is taken any more, none goes on behind it
        self._reading: tuple[Request, Prompt] | None = None  # who joins next
        self._running: list[Request] = []  # row by row
        self._under_way: deque[Chosen] = deque()
        self._thread: threading.Thread | None = None
        self.metrics.waiting.set_function(lambda: len(self._waiting))
        self.metrics.running.set_function(lambda: len(self._begun))
        self.metrics.pages_used.set_function(lambda: self.pages.used)
        self.metrics.pages_free.set_function(lambda: self.pages.free)

    @property
    def closed(self) -> bool:
        """Whether no request is taken any more."""
        return self._deadline is not None

    @property
    def busy(self) -> bool:
        """Whether there is a request that has not ended."""
        return bool(self._waiting or self._begun)

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
            if request in self._begun:
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
        """Those who leave; a chunk of a prompt; a step of all."""
        with self._changed:
            leaving, self._leaving = self._leaving, {}
            late = self._deadline is not None and time.monotonic() >= self._deadline
        for request, outcome in leaving.items():
            self._leave(request, outcome)
        if late:
            self._end_all()
        self._read()
        if self._running:
            self._choose(0, self.batch.step())
        if not self._running:  # so that no step follows
            self._give_out(0)

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
            self._changed.wait_for(lambda: self.busy or self._deadline is not None)
            return self.busy

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
        """Lets the first of the queue begin, if there is place for it."""
        with self._changed:
            if not self._waiting or len(self._running) == self.batch.rows:
                return
            request = self._waiting[0]
            pages = self.pages.take(self.batch.cache.pages_for(request.places))
            if pages is None:
                return
            request.pages = pages
            self._begun.add(self._waiting.popleft())
        self._reading = request, self.batch.begin(request.prompt, pages)

    def _read(self) -> None:
        """Reads a chunk of a prompt, who joins the batch behind the last one, with a token."""
        if self._reading is None:
            self._admit()
        if self._reading is None:
            return
        request, prompt = self._reading
        before = prompt.read
        try:
            logits = self.batch.read(prompt, self.chunk)
        except torch.OutOfMemoryError:  # of this prompt alone: the others go on
            self._leave(request, "error")
            return
        self.metrics.prompt_tokens.inc(prompt.read - before)
        if logits is not None:
            self._reading = None
            self._running.append(request)
            self._choose(len(self._running) - 1, logits, prompt)

    def _choose(self, first: int, logits: Tensor, joins: Prompt | None = None) -> None:
        """Queues the choice of a token for each row from `first` on, and its way to the host.

        Who has its last token leaves the batch, and its pages are free: whoever gets them writes
        behind all that is queued.
        """
        requests = self._running[first:]
        samplings = [request.sampling for request in requests]
        numbers = [r.uniforms[r.count] if r.uniforms else 0.0 for r in requests]
        chosen = choose_each(logits, samplings, sent(numbers, torch.float64, logits.device))
        if joins is None:
            self.batch.go_on(chosen)
        else:
            self.batch.add(joins, chosen)
        self._under_way.append((requests, fetched(chosen)))
        for request in requests:
            request.count += 1
            if request.count == request.limit:
                self._vacate(request)
        self._give_out(self.lag)

    def _give_out(self, keep: int) -> None:
        """Gives out tokens, but for the last `keep` results of the device, and ends who is done."""
        while len(self._under_way) > keep:
            requests, tokens = self._under_way.popleft()
            for request, token in zip(requests, tokens(), strict=True):
                if request in self._begun:  # and has not ended with the token before
                    self._give(request, token)

    def _give(self, request: Request, token: int) -> None:
        """Gives out a request's next token."""
        now = time.monotonic()
        seconds = self.metrics.following if request.given else self.metrics.first
        seconds.observe(now - request.since)
        if request.given:
            request.longest = max(request.longest, now - request.since)
        self.metrics.tokens.inc()
        request.given, request.since = request.given + 1, now
        request.on_token(token)
        if token in self.ends:
            self._leave(request, "stop")
        elif request.given == request.limit:
            self._leave(request, "length")

    def _leave(self, request: Request, outcome: str) -> None:
        """Ends a request that has begun, if it has not ended yet."""
        with self._changed:
            if request not in self._begun:
                return
            self._begun.remove(request)
            self._leaving.pop(request, None)
        self._vacate(request)
        self._tell(request, outcome)

    def _vacate(self, request: Request) -> None:
        """Takes a request out of the batch, if it is still there, and frees its pages."""
        if self._reading is not None and self._reading[0] is request:
            self._reading = None
        elif request in self._running:
            row = self._running.index(request)
            self._running[row] = self._running[-1]
            self._running.pop()
            self.batch.remove(row)
        self._free(request)

    def _free(self, request: Request) -> None:
        """Frees the pages that a request has, if any."""
        self.pages.put_back(request.pages)
        request.pages = []

    def _end_all(self) -> None:
        """Ends all requests with an error, after `close`. The batch is left as it is."""
        with self._changed:
            requests = [*self._begun, *self._waiting]
            self._begun.clear()
            self._waiting.clear()
            self._leaving.clear()
        self._reading = None
        self._running.clear()
        self._under_way.clear()
        for request in requests:
            self._free(request)
            self._tell(request, "error")

    def _tell(self, request: Request, outcome: str) -> None:
        self.metrics.ended(outcome)
        if request.longest > 0:
            self.metrics.longest.observe(request.longest)
        request.on_end(outcome)
