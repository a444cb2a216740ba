"""What a server counts, in Prometheus' text format; names begin with `serve_`."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
OUTCOMES = ("stop", "length", "cancelled", "error", "refused", "invalid")
"""How a request ends: at a stop or the text's end; at max_tokens; left by its client; by a failure
or the end of the server; for want of place; before it was one, with a 4xx."""

_SECONDS = tuple(base * 10.0**power for power in range(-4, 2) for base in (1, 2, 5))


class Metrics:
    """Counters of one engine, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        options = {"namespace": "serve", "registry": self.registry}
        self.requests = Counter("requests", "Requests that ended, by how.", ["outcome"], **options)
        for outcome in OUTCOMES:
            self.requests.labels(outcome)  # all are there from the start, at 0
        self.waiting = Gauge("queue_length", "Requests that wait to join the batch.", **options)
        self.running = Gauge("running", "Requests that have begun and not ended.", **options)
        self.pages_used = Gauge("pages_used", "Pages of the cache that texts hold.", **options)
        self.pages_free = Gauge("pages_free", "Pages of the cache that are free.", **options)
        self.prompt_tokens = Counter("prompt_tokens", "Tokens of prompts read.", **options)
        self.tokens = Counter("generated_tokens", "Tokens generated.", **options)
        self.first = Histogram(
            "time_to_first_token_seconds",
            "From a request's arrival at the engine to its first token.",
            buckets=_SECONDS,
            **options,
        )
        self.following = Histogram(
            "time_per_token_seconds",
            "From a request's token to its next.",
            buckets=_SECONDS,
            **options,
        )
        self.longest = Histogram(
            "longest_time_per_token_seconds",
            "The longest of these of each request, when it ends.",
            buckets=_SECONDS,
            **options,
        )

    def ended(self, outcome: str) -> None:
        """A request has ended, in one of OUTCOMES."""
        self.requests.labels(outcome).inc()

    def text(self) -> bytes:
        """All of it as it is now."""
        return generate_latest(self.registry)
