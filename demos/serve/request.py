"""A request to the engine, and why one is not taken."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from models.sampling import Sampling


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
    count: int = field(default=0, init=False)  # tokens that were chosen, on the device
    given: int = field(default=0, init=False)  # tokens that were given out
    since: float = field(default=0.0, init=False)  # when it came, or its latest token
    longest: float = field(default=0.0, init=False)  # seconds from one token to the next, so far

    @property
    def places(self) -> int:
        """Tokens that the cache may come to hold: the last one is given out, and needs no place."""
        return len(self.prompt) + self.limit - 1
