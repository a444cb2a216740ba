"""demos/serve without HTTP: pages, rows and the scheduler, alone and in its thread."""

import random
import threading
import time

import pytest
import torch

pytest.importorskip("prometheus_client")

import batch as batch_module
from batch import Batch, buckets
from engine import Engine
from engines import VOCABULARY, Asked, check_idle, check_pages, drawn, make_engine
from models.cache import Pages
from request import Closed, QueueFull
from served import SAMPLINGS, check_likeliest, in_bfloat16


@pytest.mark.parametrize("number", range(8))
def test_any_schedule_loses_nothing_and_leaks_nothing(number):
    """Requests that come, and are cancelled, at any turn; pages are short, so that some wait.

    Prompts are read in chunks, and tokens looked at when up to two results have followed them.
    """
    rng = random.Random(number)
    options = {"lag": number % 3, "chunk": rng.choice([1, 3, 8, 25])}
    engine, asked = make_engine(rng.choice([1, 3, 5]), rng.randint(11, 24), **options), []
    while len(asked) < 25 or engine.busy:
        for _ in range(rng.choice([0, 0, 1, 3]) if len(asked) < 25 else 0):
            asked.append(drawn(rng))
            engine.submit(asked[-1])
        gone = rng.choice(asked) if asked and rng.random() < 0.3 else None
        if gone is not None:
            ended = gone.outcomes or ["cancelled"]
            engine.cancel(gone)
        engine.turn()
        check_pages(engine)
        assert gone is None or gone.outcomes == ended
    for request in asked:
        request.check()
    outcomes = [request.outcomes[0] for request in asked]
    assert {"length", "cancelled"} <= {*outcomes}
    check_idle(engine, asked)


def test_threads_that_submit_and_cancel_while_the_engine_runs():
    engine, asked = make_engine(), []
    engine.start()

    def client(number):
        rng = random.Random(number)
        for _ in range(4):
            request = drawn(rng)
            asked.append(request)
            engine.submit(request)
            if rng.random() < 0.5:
                request.over.wait(rng.uniform(0, 0.1))
                engine.cancel(request)
            assert request.over.wait(60)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.close(60)
    engine.join()
    assert len(asked) == 48
    for request in asked:
        request.check()
    check_idle(engine, asked)


def test_a_request_that_needs_all_pages_waits_and_is_not_overtaken():
    engine = make_engine(pages=10)
    first, whole, small = Asked([1] * 8, 9), Asked([2] * 20, 21), Asked([3], 2)
    for request in (first, whole, small):
        engine.submit(request)
    while engine.busy:
        engine.turn()
        assert first.outcomes or not whole.got
        assert whole.outcomes or not small.got
    for request in (first, whole, small):
        request.check()


def test_the_pages_of_a_request_that_is_cancelled_are_free_at_the_next_turn():
    engine = make_engine(pages=40)
    stays, goes = Asked([1, 2, 3], 40), Asked([4] * 20, 30)
    engine.submit(stays), engine.submit(goes)
    engine.turn(), engine.turn(), engine.turn()
    held, its = engine.pages.used, len(goes.pages)
    engine.cancel(goes), engine.cancel(goes)
    engine.turn()
    assert goes.got and goes.outcomes == ["cancelled"] and not goes.pages
    assert engine.pages.used == held - its == len(stays.pages)
    engine.cancel(goes)
    waits = Asked([5], 3)
    engine.submit(waits)
    engine.cancel(waits, "stop")
    assert waits.outcomes == ["stop"] and not waits.got
    while engine._running:
        engine.turn()
    stays.check()


def test_a_full_queue_refuses_and_takes_again():
    engine = make_engine(rows=1, queue=2)
    asked = [Asked([n], 2) for n in range(4)]
    engine.submit(asked[0]), engine.submit(asked[1])
    with pytest.raises(QueueFull, match="^2 requests wait already, and no more may$"):
        engine.submit(asked[2])
    engine.turn()
    engine.submit(asked[3])
    while engine.busy:
        engine.turn()
    assert [bool(request.got) for request in asked] == [True, True, False, True]


@pytest.mark.parametrize(
    ("prompt", "limit", "message"),
    [
        ([], 1, "the prompt has no token"),
        ([0, VOCABULARY], 1, "the prompt's tokens must be in 0 … 100"),
        ([-1], 1, "the prompt's tokens must be in 0 … 100"),
        ([1], 0, "at least 1 token to generate, got 0"),
        ([1] * 50, 12, "50 tokens and 12 more do not fit the context of 60"),
    ],
)
def test_requests_that_could_never_be_served(prompt, limit, message):
    engine = make_engine()
    with pytest.raises(ValueError, match=message):
        engine.submit(Asked(prompt, limit))
    assert not engine._waiting
    if len(prompt) == 50:  # the last token needs no place
        engine.submit(Asked(prompt, 11))
        with pytest.raises(ValueError, match="do not fit the context of 40"):
            make_engine(pages=10).submit(Asked(prompt, 11))


def test_within_the_grace_period_requests_end_and_behind_it_they_fail():
    engine, asked = make_engine(rows=2), [Asked([n], 9) for n in range(4)]
    for request in asked:
        engine.submit(request)
    engine.start()
    engine.close(60)
    engine.join()
    for request in asked:
        request.check()
    with pytest.raises(Closed, match="shutting down"):
        engine.submit(Asked([1], 1))
    engine = make_engine(rows=2, pages=30)
    late = [Asked([n], 50) for n in range(3)]
    for request in late:
        engine.submit(request)
    engine.turn(), engine.turn()
    engine.close(0)
    engine.start()
    engine.join()
    assert [request.outcomes for request in late] == [["error"]] * 3
    assert [len(request.got) > 0 for request in late] == [True, True, False]
    assert engine.pages.used == 0


def test_when_the_model_fails_all_requests_end(monkeypatch):
    failed = threading.Event()
    engine = make_engine(rows=2, on_failure=failed.set)
    asked = [Asked([n], 9) for n in range(4)]

    def step():
        raise RuntimeError("unspecified launch failure")

    monkeypatch.setattr(engine.batch, "step", step)
    for request in asked:
        engine.submit(request)
    engine.start()
    engine.join()
    assert failed.is_set() and str(engine.failure) == "unspecified launch failure"
    assert [request.outcomes for request in asked] == [["error"]] * 4
    assert engine.closed and engine.pages.used == 0


def test_a_prompt_that_memory_is_too_small_for_ends_alone(monkeypatch):
    engine = make_engine()
    asked = [Asked([n, n], 9) for n in range(3)]
    read = engine.batch.read

    def failing(prompt, most):
        if prompt.tokens == [1, 1]:
            raise torch.OutOfMemoryError
        return read(prompt, most)

    monkeypatch.setattr(engine.batch, "read", failing)
    for request in asked:
        engine.submit(request)
    while engine.busy:
        engine.turn()
        check_pages(engine)
    assert asked[1].outcomes == ["error"]
    for request in asked:
        request.check()
    check_idle(engine, asked)


def test_an_idle_engine_waits_and_closes_at_once():
    engine = make_engine()
    engine.start()
    time.sleep(0.05)
    start = time.thread_time()
    engine.close(60)
    engine.join()
    assert time.thread_time() - start < 1 and not engine._thread.is_alive()


def test_pages_are_taken_and_put_back_once():
    pages = Pages(5)
    one, two = pages.take(2), pages.take(3)
    assert sorted(one + two) == [0, 1, 2, 3, 4] and pages.take(1) is None and pages.take(0) == []
    pages.put_back(one)
    assert pages.free == 2 and pages.used == 3
    for wrong in (one, [two[0], two[0]], [7]):
        with pytest.raises(ValueError, match="not all in use"):
            pages.put_back(wrong)
    assert sorted(pages.take(2)) == sorted(one)


def test_the_rows_that_are_captured():
    assert buckets(1) == [1] and buckets(8) == [1, 2, 4, 8] and buckets(12) == [1, 2, 4, 8, 12]


class Replayed:
    """What stands for a CUDA graph on the CPU: a step whose result is where the first one was."""

    def __init__(self, step, device, pool):
        self.step, self.result, self.shared = step, step(), pool

    def replay(self):
        self.result.copy_(self.step())

    def pool(self):
        return (0, 1)


def test_steps_of_more_rows_than_have_a_text(monkeypatch):
    """As graphs take them: 5 rows may be a step of 7, of which 2 are left alone."""
    made = []

    def captured(step, device, pool=None):
        made.append(Replayed(step, device, pool))
        return made[-1], made[-1].result

    monkeypatch.setattr(batch_module, "captured", captured)
    engine, asked = make_engine(rows=7, pages=60), []
    engine.batch._buckets = buckets(7)
    with torch.inference_mode():
        engine.batch._capture()
    assert [len(graph.result) for graph in made] == [7, 4, 2, 1]
    assert [graph.shared for graph in made] == [None, (0, 1), (0, 1), (0, 1)]
    rng = random.Random(1)
    for _ in range(12):
        asked.append(drawn(rng))
        engine.submit(asked[-1])
    while engine.busy:
        engine.turn()
        check_pages(engine)
    for request in asked:
        request.check()


@pytest.mark.gpu
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_captured_steps_are_those_without_graphs(sampling):
    """While rows come and go through all buckets, and graphs share their memory."""
    made, runs = in_bfloat16("cuda"), []
    for graph in (True, False):
        rng = random.Random(1)
        batch = Batch(made, 6, 100, 16, 42, graph=graph)
        assert sorted(batch._graphs) == ([1, 2, 4, 6] if graph else [])
        engine, asked = Engine(batch, 100, ()), []
        for _ in range(15):
            prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 60))]
            asked.append(Asked(prompt, rng.randint(1, 40), sampling, rng.randrange(2**63)))
            engine.submit(asked[-1])
        while engine.busy:
            engine.turn()
        assert engine.pages.used == 0
        runs.append([request.got for request in asked])
    assert runs[0] == runs[1] and all(runs[0])
    if sampling.temperature == 0:
        for request in asked:
            check_likeliest(made, request.prompt, request.got)
