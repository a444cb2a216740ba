"""demos/serve as a process, with real clients on 127.0.0.1."""

import asyncio
import contextlib
import json
import random
import re
import signal
import socket
import threading
import time

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
pytest.importorskip("httpx")

import httpx
import serve as program
import torch
from models import llama_checkpoint, llama_config
from models.sampling import Sampling
from served import ENTRIES, SAMPLINGS, alone, model, save
from serving import Served, check_error

PROGRAM = "serve/serve.py"
TEXTS = ("def add_1_2(x):\n", "return x + 7", "    x", "größer 🐱 als")


@pytest.fixture(scope="module")
def run_server(start_program, tokenizer, tmp_path_factory):
    """Starts a server of the tests' model with further options; all are ended."""
    folder = save(tmp_path_factory.mktemp("serve") / "small", tokenizer)
    started = []

    def run(*options):
        which = [] if "--random" in options else ["--model", folder]
        process = start_program(PROGRAM, *which, "--device", "cpu", "--port", 0, *options)
        started.append(process)
        return Served(process)

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def server(run_server):
    """For most tests: 8 rows, and pages for about 4 of the longest texts."""
    options = ["--batch", 8, "--context", 120, "--page", 16, "--pages", 32, "--max-body", 4000]
    options += ["--prefill-chunk", 16]
    return run_server(*options, "--max-tokens", 80, "--max-prompt-tokens", 100)


def expected(tokenizer, body):
    """Text and reason of a request, from demos/generate's decoder, alone."""
    made = model(tokenizer.get_vocab_size())
    prompt = body["prompt"]
    prompt = tokenizer.encode(prompt).ids if isinstance(prompt, str) else prompt
    sampling = Sampling(body["temperature"], body.get("top_k", 0), body.get("top_p", 1.0))
    tokens = alone(made, prompt, body["max_tokens"], sampling, body["seed"])
    ended = tokens[-1] in made.config.ends
    text = tokenizer.decode(tokens[:-1] if ended else tokens)
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
    return text, "stop" if ended else "length", usage


def drawn(rng):
    sampling = rng.choice(SAMPLINGS)
    return {
        "prompt": rng.choice([*TEXTS, [rng.randrange(250) for _ in range(rng.randint(1, 40))]]),
        "max_tokens": rng.randint(8, 60),
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "seed": rng.randrange(2**63),
    }


async def streamed(client, body, leave_after=None):
    """Text, reason and usage of a stream; or it is left after so many chunks."""
    text, reason, usage, chunks, done = "", None, None, 0, False
    options = {"stream": True, "stream_options": {"include_usage": True}}
    async with client.stream("POST", "/v1/completions", json=body | options) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        async for line in response.aiter_lines():
            if not line:
                continue
            assert line.startswith("data: ") and not done
            done = line == "data: [DONE]"
            if done:
                continue
            entries = json.loads(line.removeprefix("data: "))
            usage = entries.get("usage", usage)
            for choice in entries["choices"]:
                text, reason = text + choice["text"], choice["finish_reason"]
            chunks += 1
            if chunks == leave_after:
                return None
    assert done
    return text, reason, usage


async def left(client, body, rng):
    """A client that leaves: before an answer, or among its chunks."""
    if rng.random() < 0.5:
        with contextlib.suppress(asyncio.TimeoutError, httpx.HTTPError):
            stream = rng.random() < 0.5
            post = client.post("/v1/completions", json=body | {"stream": stream})
            await asyncio.wait_for(post, rng.uniform(0.05, 0.3))
    else:
        await streamed(client, body, rng.randint(1, 4))


def test_64_clients_of_which_half_leave(server, tokenizer):
    """The others get what they get alone; nothing stays behind; the metrics add up."""
    rng = random.Random(5)
    bodies = [drawn(rng) for _ in range(64)]
    before = server.settled()

    async def all_clients():
        limits = httpx.Limits(max_connections=None)
        options = {"base_url": server.url, "limits": limits, "timeout": 120}
        async with httpx.AsyncClient(**options) as client:
            stay = [streamed(client, body) for body in bodies[:32]]
            leave = [left(client, body, random.Random(n)) for n, body in enumerate(bodies[32:])]
            return (await asyncio.gather(*stay, *leave))[:32]

    answers = asyncio.run(all_clients())
    for body, (text, reason, usage) in zip(bodies, answers, strict=False):
        wanted_text, wanted_reason, wanted_usage = expected(tokenizer, body)
        assert (text, reason) == (wanted_text, wanted_reason)
        assert wanted_usage.items() <= usage.items()
    found = server.settled()
    assert found["pages_used"] == 0 and found["pages_free"] == 32
    ended = {name: found[name] - before[name] for name in found}
    counts = {name: ended[f'requests_total{{outcome="{name}"}}'] for name in server.outcomes()}
    assert counts["refused"] == counts["invalid"] == counts["error"] == 0
    assert counts["cancelled"] > 5 and counts["stop"] + counts["length"] >= 32
    assert sum(counts.values()) <= 64  # who left before its request was sent is no request
    done = sum(usage["completion_tokens"] for _, _, usage in answers)
    assert ended["generated_tokens_total"] >= done
    first = ended["time_to_first_token_seconds_count"]
    assert ended["time_per_token_seconds_count"] == ended["generated_tokens_total"] - first
    assert first >= 32


def test_an_answer_that_is_not_streamed(server, tokenizer):
    body = {"prompt": TEXTS[0], "max_tokens": 20, "temperature": 0, "seed": 0}
    answer = server.post(**body, model="small")
    assert answer.status_code == 200
    entries, (text, reason, usage) = answer.json(), expected(tokenizer, body)
    usage["total_tokens"] = sum(usage.values())
    choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}
    assert entries["choices"] == [choice] and entries["usage"] == usage
    assert entries["object"] == "text_completion" and entries["model"] == "small"
    assert entries["id"].startswith("cmpl-") and abs(entries["created"] - time.time()) < 60
    echoed = server.post(**body, echo=True).json()["choices"][0]["text"]
    assert echoed == TEXTS[0] + text


def test_a_stop_string_ends_the_text_and_frees_the_pages(server, tokenizer):
    body = {"prompt": TEXTS[1], "max_tokens": 70, "temperature": 1.0}
    for body["seed"] in range(99):  # the first whose text goes on for long
        whole, reason, usage = expected(tokenizer, body)
        if reason == "length" and len(whole) > 60:
            break
    stop = whole[20:26]
    before = server.metrics()["generated_tokens_total"]
    choice = server.post(**body, stop=["never there", stop]).json()
    assert choice["choices"][0]["text"] == whole[: whole.index(stop)]
    assert choice["choices"][0]["finish_reason"] == "stop"
    assert choice["usage"]["completion_tokens"] < usage["completion_tokens"]
    found = server.settled()
    assert found["pages_used"] == 0
    assert found["generated_tokens_total"] - before < usage["completion_tokens"]


def test_without_a_seed_texts_differ(server):
    body = {"prompt": TEXTS[1], "max_tokens": 30}
    texts = {server.post(**body).json()["choices"][0]["text"] for _ in range(3)}
    assert len(texts) > 1


def test_the_other_pages(server):
    models = httpx.get(f"{server.url}/v1/models").json()
    assert models["object"] == "list" and [m["id"] for m in models["data"]] == ["small"]
    health = httpx.get(f"{server.url}/health")
    assert health.status_code == 200 and health.json() == {"status": "ok"}
    metrics = httpx.get(f"{server.url}/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=")
    assert "# TYPE serve_time_to_first_token_seconds histogram" in metrics.text
    for method, page, status in (("GET", "/nowhere", 404), ("GET", "/v1/completions", 405)):
        answer = httpx.request(method, server.url + page)
        check_error(answer, status, "page")
    assert "attention_decode: torch (" in "".join(server.lines)


def test_a_body_that_is_too_large_is_not_read(server):
    """The connection is closed: there may be gigabytes behind."""
    answer = server.post(prompt="x" * 5000)
    check_error(answer, 413, "the body must be at most 4000 bytes")
    assert answer.headers["connection"] == "close"
    check_error(server.post(prompt=3), 400, "prompt: must be a string or a list of tokens")


def test_a_client_that_leaves_in_the_middle_of_its_body(server):
    before = server.outcomes()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        time.sleep(0.2)
    wanted = before | {"cancelled": before["cancelled"] + 1}
    for _ in range(100):
        if server.outcomes() == wanted:
            return
        time.sleep(0.05)
    assert server.outcomes() == wanted


def in_thread(function):
    """Starts it; the result waits for what it returns."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()

    def wait():
        thread.join(60)
        return found[0]

    return wait


LONG = {"prompt": [1, 2, 3], "temperature": 1.0, "seed": 3, "max_tokens": 250}


@pytest.fixture
def run_random(run_server, tmp_path):
    """The same of random weights, whose texts have no end but their length."""
    (tmp_path / "config.json").write_text(
        json.dumps(ENTRIES | {"vocab_size": 101, "max_position_embeddings": 4096})
    )
    return lambda *options: run_server("--random", tmp_path, *options)


def wait_until(condition):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it does not come")


def test_a_full_queue_is_429_and_sigint_ends_with_an_error(run_random):
    """One row, a queue of one: the third request is refused; two end at the second SIGINT."""
    served, lines = run_random("--batch", 1, "--queue", 1, "--context", 4096), []
    long = LONG | {"max_tokens": 4090}

    def stream():
        body = long | {"stream": True}
        with httpx.stream("POST", f"{served.url}/v1/completions", json=body, timeout=60) as answer:
            lines.extend(line for line in answer.iter_lines() if line)

    runs = in_thread(stream)
    wait_until(lambda: served.metrics()["running"])
    waits = in_thread(lambda: served.post(**long))
    wait_until(lambda: served.metrics()["queue_length"])
    answer = served.post(**long)
    error = check_error(answer, 429, "1 requests wait already, and no more may")
    assert error["type"] == "rate_limit_error" and int(answer.headers["retry-after"]) >= 1
    assert served.outcomes()["refused"] == 1
    served.process.send_signal(signal.SIGINT)
    assert "shutting down" in served.process.stdout.readline()
    code, _, errors = served.interrupt()
    runs()
    check_error(waits(), 503, "the server has shut down before the text ended")
    last = json.loads(lines[-1].removeprefix("data: "))
    assert "shut down before the text ended" in last["error"]["message"] and len(lines) > 1
    assert (code, errors) == (0, "")


def test_sigint_lets_requests_end_and_takes_no_more(run_random, tmp_path):
    """It speaks in numbers, as random weights have no tokenizer, and to this machine alone."""
    served = run_random("--batch", 2, "--grace", 60)
    answer = served.post(prompt=[1, 2], max_tokens=3, echo=True).json()["choices"][0]
    assert re.fullmatch(r" 1 2( \d+){3}", answer["text"])
    check_error(served.post(prompt="text"), 400, "this model has no tokenizer")
    port = int(served.url.rsplit(":")[-1])
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", port), timeout=5)
    runs = in_thread(lambda: served.post(**LONG))
    wait_until(lambda: served.metrics()["running"])
    served.process.send_signal(signal.SIGINT)
    assert "shutting down" in served.process.stdout.readline()
    with pytest.raises(httpx.ConnectError):
        for _ in range(50):
            served.post(prompt=[1], max_tokens=1)
            time.sleep(0.02)
    config, _ = llama_config.read_shape(str(tmp_path))
    made = llama_checkpoint.random(config, torch.float32, torch.device("cpu"), seed=1)
    tokens = alone(made, LONG["prompt"], 250, Sampling(1.0), LONG["seed"], ends=())
    answer = runs().json()["choices"][0]
    assert answer["text"] == "".join(f" {token}" for token in tokens)
    assert answer["finish_reason"] == "length" and served.process.wait(60) == 0


def test_a_model_that_fails_ends_the_server(tmp_path, monkeypatch, capsys):
    """In this process: requests end with a sentence, the exit code is 1, and so does the server."""
    (tmp_path / "config.json").write_text(json.dumps(ENTRIES | {"vocab_size": 101}))
    listener = program.bound("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/completions"
    monkeypatch.setattr(program, "bound", lambda host, port: listener)

    def step(self):
        raise RuntimeError("CUDA error: unspecified launch failure\nCompile with …")

    monkeypatch.setattr(program.Batch, "step", step)

    def client():
        transport = httpx.HTTPTransport(retries=10)
        with httpx.Client(transport=transport, timeout=60) as connected:
            return connected.post(url, json={"prompt": [1, 2], "max_tokens": 9})

    answer = in_thread(client)
    assert program.main(["--random", str(tmp_path), "--device", "cpu"]) == 1
    check_error(answer(), 500, "the model has failed")
    errors = capsys.readouterr().err
    assert errors.endswith("serve: the model has failed: CUDA error: unspecified launch failure\n")
