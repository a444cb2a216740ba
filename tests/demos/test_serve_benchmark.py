"""demos/serve/benchmark: what its clients see of a stream, and the whole of it on a small model."""

import asyncio
import json
import random

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from benchmark import Answer, RequestFailed, ask, drawn, load, milliseconds, parse_options
from served import ENTRIES

PROGRAM = "serve/benchmark.py"
QUICK = ("--tokens", 3, 8, "--short", 2, 9, "--long", 20, 30)


def event(text="", reason=None, **more):
    choices = [{"text": text, "finish_reason": reason}]
    return f"data: {json.dumps({'choices': choices, **more})}\n\n".encode()


USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4}}\n\n'
PAUSE = 0.05
STREAM = [event(" 1"), PAUSE, event(" 2") + event(" 3"), 2 * PAUSE, event(" 4")]
END = [event("", "length"), USAGE, b"data: [DONE]\n\n"]


def answered(parts, cut=10**6, status="200 OK"):
    """What a client makes of a body that comes so: bytes in chunks of up to `cut`, and pauses."""
    seen = []

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        seen.append(json.loads(await reader.readexactly(length)))
        writer.write(f"HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for part in parts:
            if isinstance(part, float):
                await asyncio.sleep(part)
                continue
            for at in range(0, len(part), cut):
                piece = part[at : at + cut]
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        writer.close()

    async def run():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()
            return await ask(address, {"prompt": [1]})

    found = asyncio.run(run())
    assert seen == [{"prompt": [1]}]
    return found


@pytest.mark.parametrize("cut", [7, 10**6])
def test_an_answer_in_whatever_chunks(cut):
    """Times are those of the server's pauses at least; sleeps are never shorter than asked for."""
    found = answered([PAUSE, *STREAM, *END], cut)
    assert (found.prompt_tokens, found.tokens, len(found.pieces)) == (5, 4, 4)
    assert found.pieces == sorted(found.pieces) and found.pieces[0] >= PAUSE
    assert found.per_token >= PAUSE  # of 3 gaps, 3 pauses
    assert 2 * PAUSE <= found.longest <= found.pieces[-1] - found.pieces[0]


@pytest.mark.parametrize(
    "parts, status, message",
    [
        ([b'{"error": {"message": "4 wait"}}'], "429 Too Many Requests", "(?s)429 .*4 wait"),
        ([event(" 1"), b'data: {"error": {"message": "it failed"}}\n\n'], "200 OK", "it failed"),
        (STREAM, "200 OK", "ended before the text did"),
        ([*STREAM, END[0]], "200 OK", "ended before the text did"),
    ],
)
def test_a_request_that_is_not_answered_whole(parts, status, message):
    with pytest.raises(RequestFailed, match=message):
        answered(parts, status=status)


def test_figures():
    assert milliseconds([]) is None
    assert milliseconds([0.001 * n for n in range(1, 101)]) == pytest.approx(
        {"median": 50.5, "95 %": 95.0}
    )
    assert milliseconds([0.5]) == {"median": 500.0, "95 %": 500.0}
    assert Answer(3, 1, [0.2]).per_token is None and Answer(3, 1, [0.2]).longest == 0
    assert Answer(3, 5, [1.0, 1.5, 3.0]).per_token == 0.5


def test_what_is_asked_for_is_the_seed_s():
    options, rest = parse_options(["--short", "2", "4", "--batch", "8", "--long", "50", "60"])
    assert rest == ["--batch", "8"]
    bodies = [[drawn(options, random.Random(seed)) for seed in range(400)] for _ in range(2)]
    assert bodies[0] == bodies[1]
    lengths = [len(body["prompt"]) for body in bodies[0]]
    assert {*lengths} == {2, 3, 4, *range(50, 61)}
    assert 60 < sum(length > 4 for length in lengths) < 140  # 100 ± 4.6 · √(400 · ¼ · ¾)
    assert {*range(64, 193)} >= {body["max_tokens"] for body in bodies[0]}


@pytest.fixture
def shape(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(ENTRIES | {"vocab_size": 1000}))
    return tmp_path


def test_the_whole_of_it(run_program, shape):
    record = shape / "figures.json"
    options = ["--clients", 1, 5, "--requests", 2, *QUICK, "--json", record]
    of_server = ["--random", shape, "--device", "cpu", "--batch", 4, "--prefill-chunk", 16]
    done = run_program(PROGRAM, *options, *of_server)
    assert (done.returncode, done.stderr) == (0, "")
    assert "listening on http://127.0.0.1:" in done.stdout
    assert "1 clients, 2 requests of " in done.stdout and "5 clients, 10 req" in done.stdout
    found = json.loads(record.read_text())
    options, _ = parse_options([str(option) for option in options])
    for entry, clients in zip(found, (1, 5), strict=True):
        rng = random.Random(f"1 {clients}")
        bodies = [drawn(options, rng) for _ in range(3 * clients)][clients:]
        assert entry["clients"] == clients and entry["requests"] == 2 * clients
        assert entry["tokens"] == sum(body["max_tokens"] for body in bodies)
        assert entry["prompt_tokens"] == sum(len(body["prompt"]) for body in bodies)
        for rate, count in (("requests_per_second", "requests"), ("tokens_per_second", "tokens")):
            assert entry[rate] * entry["seconds"] == pytest.approx(entry[count])
        for name in ("first_token_ms", "per_token_ms", "longest_ms"):
            assert 0 < entry[name]["median"] <= entry[name]["95 %"] < 1e3 * entry["seconds"]
        assert entry["per_token_ms"]["median"] <= entry["longest_ms"]["95 %"]


@pytest.mark.parametrize(
    "further, code, said",
    [
        (["--max-tokens", 2], 1, "max_tokens must be at most 2"),
        (["--page", 0], 2, "must be in 1"),
    ],
)
def test_what_goes_wrong_is_said(run_program, shape, further, code, said):
    of_server = ["--random", shape, "--device", "cpu", *further]
    done = run_program(PROGRAM, "--clients", 1, *QUICK, *of_server)
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr


def test_clients_are_there_at_once():
    """All of them connect before any is answered."""
    waiting, bodies = [], [[{"n": n}] for n in range(64)]

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        waiting.append(writer)
        if len(waiting) < len(bodies):
            return
        for other in waiting:
            content = event(" 1", "length") + USAGE
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            other.write(head + f"{len(content):x}\r\n".encode() + content + b"\r\n0\r\n\r\n")
            other.close()

    async def run():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()
            return await asyncio.wait_for(load(address, bodies), 30)

    assert len(asyncio.run(run())) == 64
