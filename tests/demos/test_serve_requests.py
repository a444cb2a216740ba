"""What demos/serve takes and refuses: the application in this process, on an engine that runs."""

import asyncio
import json
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
pytest.importorskip("httpx")

import app
import httpx
import serve as program
from batch import Batch
from engine import Engine
from models.text_stream import TextStream
from served import model
from serving import check_error


@pytest.fixture(scope="module")
def served(tokenizer):
    """An engine of contexts of 120 tokens, and the application before it."""
    made = model(tokenizer.get_vocab_size())
    engine = Engine(Batch(made, 2, 120, 16, 16), 5)
    service = app.Service("small", tokenizer, 100, 80, 4000)
    engine.start()
    yield SimpleNamespace(engine=engine, pages=app.make_app(engine, service))
    engine.close(0)
    engine.join()


def post(served, content, kind="application/json", raises=True):
    async def sent():
        transport = httpx.ASGITransport(served.pages, raise_app_exceptions=raises)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            headers = {"Content-Type": kind}
            return await client.post("/v1/completions", content=content, headers=headers)

    return asyncio.run(sent())


def invalid(served):
    registry = served.engine.metrics.registry
    return registry.get_sample_value("serve_requests_total", {"outcome": "invalid"})


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "prompt: field required"),
        ({"prompt": 3}, 400, "prompt: must be a string or a list of tokens"),
        ({"prompt": ["a", "b"]}, 400, "several prompts are several requests"),
        ({"prompt": [1.5]}, 400, "prompt: must be a string or a list of tokens"),
        ({"prompt": []}, 400, "the prompt has no token"),
        ({"prompt": ""}, 400, "the prompt has no token"),
        ({"prompt": [1, 300]}, 400, "the prompt's tokens must be in 0 … 299"),
        ({"prompt": "\ud800"}, 400, "the body must be JSON"),
        ({"prompt": "x", "\ud800": 1}, 400, "the body must be JSON"),
        ("\xff", 400, "the body must be JSON"),
        ({"prompt": [1] * 101}, 400, "the prompt must be of at most 100 tokens, got 101"),
        ({"prompt": [1] * 80, "max_tokens": 42}, 400, "do not fit the context of 120"),
        ({"prompt": "x", "max_tokens": 81}, 400, "max_tokens must be at most 80, got 81"),
        ({"prompt": "x", "max_tokens": 0}, 400, "max_tokens: input should be greater than"),
        ({"prompt": "x", "max_tokens": "9"}, 400, "max_tokens: input should be a valid integer"),
        ({"prompt": "x", "temperature": -1}, 400, "temperature: input should be greater"),
        ({"prompt": "x", "temperature": 1e-40}, 400, "temperature: must be 0 or at least 0.01"),
        ({"prompt": "x", "temperature": float("nan")}, 400, "temperature: input should be a"),
        ({"prompt": "x", "top_p": 1.5}, 400, "top_p: input should be less than"),
        ({"prompt": "x", "seed": 2**63}, 400, "seed: input should be less than"),
        ({"prompt": "x", "stop": [""]}, 400, "stop.0: string should have at least 1 character"),
        ({"prompt": "x", "stop": list("abcde")}, 400, "stop: list should have at most 4 items"),
        ({"prompt": None}, 400, "prompt: field required"),
        ({"prompt": "x", "stream_options": {"a": 1}}, 400, "stream_options.a: there is no such"),
        ({"prompt": "x", "n": True}, 400, "n must be 1: one text is generated"),
        ({"prompt": "x", "n": 2}, 400, "n must be 1: one text is generated"),
        ({"prompt": "x", "logprobs": 1}, 400, "logprobs must be absent: log-probabilities"),
        ({"prompt": "x", "presence_penalty": 0.5}, 400, "presence_penalty must be 0"),
        ({"prompt": "x", "min_p": 0.1}, 400, "min_p: there is no such parameter"),
        ({"prompt": "x", "model": "gpt-5"}, 404, "there is no model 'gpt-5', only 'small'"),
        ({"prompt": "x" * 5000}, 413, "the body must be at most 4000 bytes"),
        ([1], 400, "the body must be a JSON object"),
        ("[" * 3000, 400, "the body must be JSON"),
        ("{", 400, "the body must be JSON"),
    ],
)
def test_bad_requests_are_a_sentence(served, body, status, message):
    before = invalid(served)
    content = body.encode("latin-1") if isinstance(body, str) else json.dumps(body).encode()
    check_error(post(served, content), status, message)
    assert invalid(served) == before + 1


def test_another_content_type_is_refused(served):
    """What a page of another site may send without asking."""
    for kind in ("text/plain", ""):
        answer = post(served, b'{"prompt": "x"}', kind)
        check_error(answer, 415, "Content-Type must be application/json")


def test_default_values_of_openai_are_taken(served):
    body = dict(
        model="small", prompt=["x"], n=1, best_of=1, logprobs=None, presence_penalty=0.0,
        frequency_penalty=0, logit_bias={}, stop=None, suffix=None, user="me", seed=None,
        stream=None, stream_options=None, max_tokens=1, temperature=None, echo=None,
    )  # fmt: skip
    assert post(served, json.dumps(body).encode()).status_code == 200


def test_text_that_cannot_be_made_is_500_and_frees_the_pages(served, monkeypatch):
    """In a stream, which has begun, it is the connection's end."""

    def step(self, token):
        raise RuntimeError("the decoder cannot go on")

    monkeypatch.setattr(TextStream, "step", step)
    content = b'{"prompt": "x", "seed": 3, "max_tokens": 50}'
    check_error(post(served, content, raises=False), 500, "the server has failed on this request")
    engine = served.engine
    while engine.pages.used:
        time.sleep(0.01)


def test_a_body_that_does_not_come_is_408(served, monkeypatch):
    monkeypatch.setattr(app, "BODY_SECONDS", 0.05)

    async def slow():
        yield b"{"
        await asyncio.sleep(60)

    answer = post(served, slow())
    check_error(answer, 408, "the body took longer than 0.05 s")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nowhere"], "serve: nowhere: no such checkpoint folder"),
        (["--random", "tiny", "--context", "5000"], "at most the model's 4096 positions"),
        (["--random", "tiny", "--host", "203.0.113.1"], "cannot listen on 203.0.113.1, port 0 ("),
    ],
)
def test_what_cannot_be_served_exits_2_with_a_sentence(arguments, message, capsys):
    assert program.main([*arguments, "--port", "0", "--device", "cpu"]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and not printed.out
