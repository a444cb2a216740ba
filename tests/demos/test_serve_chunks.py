"""demos/serve between two steps: prompts in chunks, and steps that do not wait for tokens."""

import itertools
import random
import time

import pytest
import torch

pytest.importorskip("prometheus_client")
pytest.importorskip("transformers")

import engine as engine_module
from batch import Batch
from engine import Engine
from engines import PAGE, VOCABULARY, Asked, check_idle, check_pages, make_engine
from llamas import KINDS, PROMPTS, made
from models.decoding import Decoder
from models.llama import Llama
from models.sampling import Sampling
from served import SAMPLINGS, alone, in_bfloat16, model

from tests.integrations.models import bound


def read_by(batch, tokens, pages, sizes):
    """Reads a prompt in chunks of these sizes; the logits behind it."""
    prompt = batch.begin(tokens, pages)
    *before, last = [batch.read(prompt, size) for size in sizes]
    assert before == [None] * len(before) and last.shape == (1, batch.model.config.vocab_size)
    return prompt, last


@pytest.mark.parametrize("sizes", [[12], [5, 7], [1] * 12, [4, 4, 4], [11, 99]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_in_chunks_is_the_prompt_whole(kind, sizes):
    """Logits, and what lies in the pages, in an order of their own; windows are of 8 tokens.

    Where nothing was written is NaN: it is not read.
    """
    _, _, ours = made(kind)
    decoder = Decoder(ours, 1, 12)
    expected = decoder.prefill(PROMPTS[:1])
    batch, pages = Batch(ours, 2, 40, PAGE, 20), [17, 3, 5, 9]
    with torch.inference_mode():
        for layer in batch.cache.layers:
            for cache in layer:
                cache.fill_(torch.nan)
    prompt, logits = read_by(batch, PROMPTS[0], pages, sizes)
    assert (logits - expected).abs().max() <= bound(expected)
    for layer, wanted in enumerate(decoder.cache.layers):
        for found, whole in zip(prompt.cache.span(layer, 0, 12), wanted, strict=True):
            assert (found - whole).abs().max() <= bound(whole)
        for cache in batch.cache.layers[layer]:
            assert cache.isnan().flatten(1).all(1).sum() == 20 - 3


def test_the_span_of_some_tokens():
    """Without pages a view; else a copy of the pages from that of the first token on, no more."""
    ours = made("llama")[2]
    cache = Decoder(ours, 3, 12).cache
    for found, whole in zip(cache.rows(1, 2).span(0, 3, 7), cache.layers[0], strict=True):
        assert found.shape[:2] == (1, 4) and found.data_ptr() == whole[1, 3].data_ptr()
    cache = Batch(ours, 2, 40, PAGE, 20).cache.in_pages([7, 1, 2, 9, 4])
    with torch.inference_mode():
        for pages in cache.layers[0]:
            pages.normal_()
    for found, pages in zip(cache.span(0, 6, 11), cache.layers[0], strict=True):
        assert torch.equal(found[0], pages[[1, 2]].flatten(0, 1)[: 11 - 4])
        assert found.untyped_storage().nbytes() == 2 * pages[0].nbytes


def test_no_step_waits_for_more_than_a_chunk(monkeypatch):
    """Those who run get a token at each turn, while long prompts are read between their steps."""
    engine, read = make_engine(rows=3, pages=60, ends=(), chunk=5), []
    run, long, short = Asked([1, 2], 40), Asked([3] * 38, 20), Asked([4] * 6, 3)
    forward = Llama.forward

    def counting(self, tokens, *arguments):
        read.append(len(tokens))
        return forward(self, tokens, *arguments)

    monkeypatch.setattr(Llama, "forward", counting)
    engine.submit(run)
    engine.turn()
    engine.submit(long), engine.submit(short)
    tokens, turns = len(run.got), 0
    while not short.got:
        read.clear()
        engine.turn()
        turns += 1
        assert read[0] <= 5 and len(read) == 2
        assert len(run.got) == (tokens := tokens + 1)
        assert long.got or not short.got  # who came first is served first
    assert turns == 8 + 2  # chunks of 38 and of 6 tokens
    monkeypatch.undo()
    while engine.busy:
        engine.turn()
    for request in (run, long, short):
        request.check(ends=())
    check_idle(engine, [run, long, short])


@pytest.mark.parametrize("how", ["cancel", "memory", "close"])
def test_a_prompt_that_ends_in_its_middle_frees_its_pages(how, monkeypatch):
    engine = make_engine(rows=3, pages=30, ends=(), chunk=4)
    run, long, last = Asked([1, 2], 20), Asked([3] * 38, 20), Asked([4] * 5, 3)
    for request in (run, long, last):
        engine.submit(request)
    for _ in range(4):
        engine.turn()
        check_pages(engine)
    assert engine._reading[0] is long and not long.got and not last.got
    used = engine.pages.used
    assert used == len(run.pages) + len(long.pages)
    if how == "cancel":
        engine.cancel(long)
    elif how == "close":
        engine.close(0)
    else:
        read = engine.batch.read

        def failing(prompt, most):
            if prompt.tokens == long.prompt:
                raise torch.OutOfMemoryError
            return read(prompt, most)

        monkeypatch.setattr(engine.batch, "read", failing)
    engine.turn()
    assert long.outcomes == ["cancelled" if how == "cancel" else "error"] and not long.got
    if how == "close":
        assert run.outcomes == last.outcomes == ["error"] and engine.pages.used == 0
        assert not engine.busy and tokens_read(engine) == 2 + 12
        return
    check_pages(engine)
    while engine.busy:
        engine.turn()
    run.check(ends=()), last.check(ends=())
    check_idle(engine, [run, long, last])
    assert tokens_read(engine) == 2 + 12 + 5


def tokens_read(engine):
    return engine.metrics.registry.get_sample_value("serve_prompt_tokens_total")


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_tokens_are_looked_at_when_so_many_results_have_followed(lag, monkeypatch):
    """Each is one of queue and wait; what a wait ends is decided before the next is queued."""
    made_at, waited_at, turn = [], [], itertools.count()

    def fetched(numbers):
        number, values = len(made_at), numbers.tolist()
        made_at.append(next(turn))
        waited_at.append(None)

        def wait():
            waited_at[number] = next(turn)
            return values

        return wait

    monkeypatch.setattr(engine_module, "fetched", fetched)
    engine = make_engine(lag=lag)
    asked = [Asked([5, n], 6) for n in range(2)]
    for request in asked:
        engine.submit(request)
    while engine.busy:
        engine.turn()
    for request in asked:
        request.check()
    assert None not in waited_at and not engine._under_way
    for number in range(len(made_at) - lag - 1):
        behind = made_at[number + lag :][:2]
        assert behind[0] < waited_at[number] < behind[1]


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_a_text_that_ends_by_a_token_costs_as_many_steps_as_the_lag(lag):
    """The next takes its pages, all there are, while steps that were too much are under way."""
    tokens = alone(model(), [9, 9, 1], 12, Sampling(1.0), 4, ends=())
    end = tokens[3]
    assert end not in tokens[:3]
    engine = make_engine(rows=2, pages=4, ends=[end], lag=lag)
    first, second = Asked([9, 9, 1], 12, Sampling(1.0), 4), Asked([8] * 9, 5, Sampling(1.0), 7)
    engine.submit(first), engine.submit(second)
    rows, step = [], engine.batch.step

    def counted():
        rows.append(engine.batch.used)
        return step()

    engine.batch.step = counted
    while not first.outcomes:
        engine.turn()
        check_pages(engine)
    assert first.got == tokens[:4] and first.outcomes == ["stop"]
    assert sum(rows) == 3 + lag
    while engine.busy:
        engine.turn()
    first.check([end]), second.check([end])


def test_the_longest_time_from_token_to_token_of_each_request(monkeypatch):
    """0.5, 2 and 1 s; one of a single token has none."""
    engine = make_engine(ends=())
    one, two = Asked([1], 4), Asked([2], 1)
    engine.submit(one), engine.submit(two)
    clock = {one: iter([10.0, 10.5, 12.5, 13.5]), two: iter([20.0])}
    give = engine._give

    def timed(request, token):
        monkeypatch.setattr(time, "monotonic", lambda: next(clock[request]))
        give(request, token)
        monkeypatch.undo()

    engine._give = timed
    while engine.busy:
        engine.turn()
    value = engine.metrics.registry.get_sample_value
    name = "serve_longest_time_per_token_seconds"
    assert (value(f"{name}_count"), value(f"{name}_sum")) == (1, 2.0)
    name = "serve_time_per_token_seconds"
    assert (value(f"{name}_count"), value(f"{name}_sum")) == (3, 3.5)


@pytest.mark.gpu
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_on_a_gpu_nothing_waits_but_for_tokens(sampling):
    """Torch raises where it would wait for the device; and tokens are those without a lag."""
    on_gpu, runs = in_bfloat16("cuda"), []
    for lag in (0, 1):
        rng = random.Random(1)
        engine, asked = Engine(Batch(on_gpu, 6, 100, 16, 42), 100, (), lag=lag, chunk=32), []
        for _ in range(15):
            prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 60))]
            asked.append(Asked(prompt, rng.randint(1, 40), sampling, rng.randrange(2**63)))
            engine.submit(asked[-1])
        torch.cuda.set_sync_debug_mode("error")
        try:
            while engine.busy:
                engine.turn()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        runs.append([request.got for request in asked])
    assert runs[0] == runs[1] and all(runs[0])
