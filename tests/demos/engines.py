"""What the tests of demos/serve without HTTP share: an engine, and requests that take notes."""

import threading

from batch import Batch
from engine import Engine
from models.sampling import Sampling
from request import Request
from served import SAMPLINGS, alone, model

PAGE, VOCABULARY = 4, 101


def make_engine(rows=4, pages=20, queue=100, capacity=60, **options):
    return Engine(Batch(model(), rows, capacity, PAGE, pages), queue, **options)


class Asked(Request):
    """A request that notes what it is told."""

    def __init__(self, prompt, limit, sampling=None, seed=0):
        super().__init__(prompt, limit, sampling or Sampling(), seed, self.note, self.end)
        self.got, self.outcomes, self.over = [], [], threading.Event()

    def note(self, token):
        assert not self.outcomes, "a token behind the end"
        self.got.append(token)

    def end(self, outcome):
        self.outcomes.append(outcome)
        self.over.set()

    def check(self, ends=None):
        """It has ended once, and got all that it gets alone, or the beginning if it was ended."""
        (outcome,) = self.outcomes
        tokens = alone(model(), self.prompt, self.limit, self.sampling, self.seed, ends)
        if outcome in ("stop", "length"):
            assert self.got == tokens
            ends = model().config.ends if ends is None else ends
            assert (outcome == "stop") == (tokens[-1] in ends)
        else:
            assert self.got == tokens[: len(self.got)]


def drawn(rng, longest=25, most=16):
    prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, longest))]
    return Asked(prompt, rng.randint(1, most), rng.choice(SAMPLINGS), rng.randrange(2**63))


def check_pages(engine):
    """Every page is free or that of one request, and the table says so."""
    requests, table = engine._running, engine.batch.cache.table
    reading = [] if engine._reading is None else [engine._reading[0]]
    held = [page for request in requests + reading for page in request.pages]
    assert len({*held}) == len(held) == engine.pages.used
    assert engine.pages.used + engine.pages.free == engine.pages.count
    assert len(requests) == engine.batch.used <= engine.batch.rows - len(reading)
    assert {*requests, *reading} <= engine._begun
    lengths = engine.batch.lengths.tolist()
    assert all(length == 0 for length in lengths[len(requests) :])
    assert engine.batch._active.tolist() == [row < len(requests) for row in range(len(lengths))]
    for row, request in enumerate(requests):
        assert len(request.pages) == -(-request.places // PAGE)
        assert table[row, : len(request.pages)].tolist() == request.pages
        assert lengths[row] == len(request.prompt) + request.count - 1


def count_of(engine, outcome):
    return engine.metrics.registry.get_sample_value("serve_requests_total", {"outcome": outcome})


def check_idle(engine, requests):
    """Nothing is held, and the metrics add up to what happened."""
    check_pages(engine)
    assert engine.pages.used == 0 and engine.pages.free == engine.pages.count
    assert sorted(engine.pages.take(engine.pages.count)) == [*range(engine.pages.count)]
    outcomes = [outcome for request in requests for outcome in request.outcomes]
    for outcome in ("stop", "length", "cancelled", "error"):
        assert count_of(engine, outcome) == outcomes.count(outcome)
    value = engine.metrics.registry.get_sample_value
    assert value("serve_generated_tokens_total") == sum(len(r.got) for r in requests)
    begun = sum(bool(r.got) for r in requests)
    assert value("serve_time_to_first_token_seconds_count") == begun
    following = sum(len(r.got) for r in requests) - begun
    assert value("serve_time_per_token_seconds_count") == following
    assert value("serve_queue_length") == value("serve_running") == 0
