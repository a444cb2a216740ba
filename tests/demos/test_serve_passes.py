"""demos/serve: several prompts in one pass over the model."""

import random

import pytest
import torch

pytest.importorskip("prometheus_client")
pytest.importorskip("transformers")

import engine as engine_module
from batch import Batch, Prompt
from engines import PAGE, Asked, check_idle, check_pages, make_engine
from llamas import KINDS, made
from models.decoding import Decoder

from tests.integrations.models import bound

LENGTHS = [3, 30, 1, 2, 9, 17, 1, 5]  # windows are of 8 tokens


@pytest.mark.parametrize("most", [1, 4, 7, 32, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_prompts_in_passes_are_the_prompts_alone(kind, most):
    """Logits, and what lies in the pages; where nothing was written is NaN: it is not read.

    A pass is full, and leaves at most one prompt in its middle: the first of those to come.
    """
    _, _, ours = made(kind)
    rng, batch = random.Random(1), Batch(ours, 8, 40, PAGE, 30)
    with torch.inference_mode():
        for layer in batch.cache.layers:
            for cache in layer:
                cache.fill_(torch.nan)
    free, prompts = rng.sample(range(30), 30), []
    for length in LENGTHS:
        pages = [free.pop() for _ in range(batch.cache.pages_for(length))]
        prompts.append(Prompt([rng.randrange(101) for _ in range(length)], pages))
    logits, passes = [], 0
    while rest := [prompt for prompt in prompts if prompt.rest]:
        assert not any(prompt.read for prompt in rest[1:])
        tokens = sum(prompt.rest for prompt in rest)
        logits.append(batch.read(rest, most))
        assert sum(prompt.rest for prompt in rest) == max(0, tokens - most)
        assert len(logits[-1]) == sum(prompt.rest == 0 for prompt in rest)
        passes += 1
    assert passes == -(-sum(LENGTHS) // most)
    for prompt, found in zip(prompts, torch.cat(logits), strict=True):
        decoder, length = Decoder(ours, 1, 40), len(prompt.tokens)
        (expected,) = decoder.prefill([prompt.tokens])
        assert (found - expected).abs().max() <= bound(expected)
        slots = batch.cache.slots(prompt.pages, 0, length)
        for layer, wanted in enumerate(decoder.cache.layers):
            for got, whole in zip(batch.cache.held(layer, slots), wanted, strict=True):
                assert (got - whole[0, :length]).abs().max() <= bound(whole[0, :length])
    for layer in batch.cache.layers:
        for cache in layer:
            assert cache.isnan().flatten(2).all(2).sum() == 30 * PAGE - sum(LENGTHS)


def parts_of_turn(engine):
    """Takes a turn; of each prompt that a pass of it reads, the tokens that it reads."""
    found, read = [], engine.batch.read

    def noted(prompts, most):
        before = [prompt.read for prompt in prompts]
        logits = read(prompts, most)
        taken = [prompt.read - n for prompt, n in zip(prompts, before, strict=True)]
        found.append([n for n in taken if n])
        return logits

    engine.batch.read = noted
    engine.turn()
    engine.batch.read = read
    check_pages(engine)
    return found


def finish(engine, asked):
    while engine.busy:
        engine.turn()
        check_pages(engine)
    for request in asked:
        request.check(ends=())
    check_idle(engine, asked)


def test_short_prompts_share_a_pass_and_a_long_one_is_cut():
    """In order of arrival: each of them has its first token before whoever came behind it."""
    engine = make_engine(rows=8, pages=60, ends=(), chunk=10)
    asked = [Asked([n] * length, 8) for n, length in enumerate((4, 3, 23, 2, 2, 1))]
    for request in asked:
        engine.submit(request)
    for parts, begun in (([4, 3, 3], 2), ([8], 2), ([8], 2), ([4, 2, 2], 5), ([1], 6)):
        assert parts_of_turn(engine) == [parts]
        assert [bool(request.got) for request in asked] == [n < begun for n in range(6)]
    assert parts_of_turn(engine) == []
    finish(engine, asked)


@pytest.mark.parametrize("rows, pages", [(3, 60), (8, 3 * 2 + 1)])
def test_a_pass_has_as_many_prompts_as_there_are_rows_and_pages(rows, pages):
    """The fourth waits, though the pass has tokens for it; the fifth, though it has pages."""
    engine = make_engine(rows=rows, pages=pages, ends=(), chunk=100)
    asked = [Asked([n] * 4, 5) for n in range(4)] + [Asked([9], 1)]
    for request in asked:
        engine.submit(request)
    assert parts_of_turn(engine) == [[4] * 3]
    assert [len(request.pages) for request in asked] == [2, 2, 2, 0, 0]
    finish(engine, asked)


def test_who_is_cancelled_among_those_that_are_read():
    """One that has pages, but memory was too small to read it beside another."""
    engine, failing = make_engine(rows=8, pages=60, ends=(), chunk=10), []
    asked = [Asked([n] * 13, 3) for n in range(4)]
    read = engine.batch.read

    def small(prompts, most):
        if len(prompts) > 1:
            failing.append(len(prompts))
            raise torch.OutOfMemoryError
        return read(prompts, most)

    for request in asked:
        engine.submit(request)
    engine.batch.read = small
    engine.turn(), engine.turn()
    assert failing == [2] and asked[0].got and [*engine._reading] == asked[1:2]
    engine.batch.read = read
    engine.cancel(asked[1])
    check_pages(engine)
    assert parts_of_turn(engine) == [[9]]
    assert asked[1].outcomes == ["cancelled"] and not asked[1].got
    finish(engine, asked)


def test_when_memory_is_too_small_running_texts_go_on_all_the_same():
    """One of those that were to be read ends, the first, and the others wait."""
    engine = make_engine(rows=8, pages=60, ends=(), chunk=20)
    run, first, second = asked = [Asked([n] * 5, 6) for n in range(3)]
    engine.submit(run)
    engine.turn()
    engine.submit(first), engine.submit(second)
    read = engine.batch.read

    def failing(prompts, most):
        raise torch.OutOfMemoryError

    engine.batch.read = failing
    engine.turn()
    check_pages(engine)
    assert (len(run.got), first.outcomes, [*engine._reading]) == (2, ["error"], [second])
    engine.batch.read = read
    assert parts_of_turn(engine) == [[5]]
    finish(engine, asked)


def test_who_runs_leaves_a_token_at_least_to_prompts():
    engine = make_engine(ends=(), chunk=1)
    asked = [Asked([1], 12), Asked([2] * 3, 2)]
    for request in asked:
        engine.submit(request)
    assert [parts_of_turn(engine) for _ in range(5)] == [[[1]]] * 4 + [[]]
    finish(engine, asked)


def test_a_pass_without_a_token_is_not_waited_for(monkeypatch):
    """That a lone prompt's chunk has none needs no look at the device."""
    results, fetched = [], engine_module.fetched

    def counted(numbers):
        results.append(len(numbers))
        return fetched(numbers)

    monkeypatch.setattr(engine_module, "fetched", counted)
    engine = make_engine(ends=(), chunk=10, lag=1)
    asked = [Asked([1] * 23, 4)]
    engine.submit(asked[0])
    engine.turn(), engine.turn()
    assert asked[0] in engine._reading and not results
    finish(engine, asked)
    assert results == [1] * 4


def test_what_lies_before_a_window_is_not_read():
    """Of 30 tokens 20 are there, and the next, through a window of 8, sees those from 13 on."""
    _, _, ours = made("mistral")
    batch, prompt = Batch(ours, 2, 40, PAGE, 20), Prompt([*range(30)], [*range(8, 16)])
    expected = batch.read([Prompt([*range(30)], [*range(8)])], 99)
    batch.read([prompt], 20)
    gone = batch.cache.slots(prompt.pages, 0, 13)
    with torch.inference_mode():
        for layer in batch.cache.layers:
            for cache in layer:
                cache.flatten(0, 1)[gone] = torch.nan
    found, _ = batch.read([prompt, Prompt([1], [16])], 99)
    assert (found - expected[0]).abs().max() <= bound(expected)
