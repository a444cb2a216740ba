"""Times the server with so many clients at once, over HTTP on 127.0.0.1: streams of tokens.

    python -m demos.serve.benchmark --random llama-3.1-8b --batch 64
    python -m demos.serve.benchmark --clients 1 16 64 --requests 4 --model FOLDER

It starts `python -m demos.serve` with all options that are not its own, measures, and ends it. A
client sends its requests one behind the other, each over a connection of its own, so that many are
under way all the time. Three of four prompts are short, the others long, all of random tokens; the
lengths are a seed's. Before each number of clients, so many requests warm up.

Exit codes: 0 good; 1 a request failed; 2 the server did not start.
"""

import argparse
import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

VOCABULARY = 1000  # of prompts: every model has these tokens
ROOT = Path(__file__).resolve().parents[2]


class RequestFailed(Exception):
    """A request was not answered whole; the message says how it was."""


@dataclass
class Answer:
    """What a client saw of one request, in seconds from when it connected."""

    prompt_tokens: int
    tokens: int
    pieces: list[float]  # when each event with text came

    @property
    def per_token(self) -> float | None:
        """Seconds from token to token, behind the first; None of a single one."""
        return (self.pieces[-1] - self.pieces[0]) / (self.tokens - 1) if self.tokens > 1 else None

    @property
    def longest(self) -> float:
        """The longest time without a token."""
        following = zip(self.pieces, self.pieces[1:], strict=False)
        return max((after - before for before, after in following), default=0.0)


def parse_options(arguments: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """The command line: what is of the benchmark, and what is of the server."""
    parser = argparse.ArgumentParser(
        prog="benchmark",
        description=__doc__.split("\n")[0],
        epilog="All other options are the server's: see python -m demos.serve --help.",
        allow_abbrev=False,
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64], help="at once")
    parser.add_argument("--requests", type=int, default=4, help="of each client (default: 4)")
    lengths = {"type": int, "nargs": 2, "metavar": ("LEAST", "MOST")}
    parser.add_argument("--short", default=[32, 256], help="tokens of short prompts", **lengths)
    parser.add_argument("--long", default=[1024, 3072], help="tokens of long prompts", **lengths)
    parser.add_argument("--tokens", default=[64, 192], help="generated of each", **lengths)
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest tokens")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="a file for the figures")
    return parser.parse_known_args(arguments)


def drawn(options: argparse.Namespace, rng: random.Random) -> dict:
    """The body of a request."""
    length = rng.randint(*(options.long if rng.random() < 0.25 else options.short))
    return {
        "prompt": [rng.randrange(VOCABULARY) for _ in range(length)],
        "max_tokens": rng.randint(*options.tokens),
        "temperature": options.temperature,
        "seed": rng.randrange(2**63),
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def lines_of(reader: asyncio.StreamReader):
    """The lines of an answer's body, which comes in chunks (RFC 9112, 7.1)."""
    rest = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        rest += (await reader.readexactly(size + 2))[:-2]
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield line


async def ask(address: tuple[str, int], body: dict) -> Answer:
    """Sends one request and reads its answer.

    Raises:
        RequestFailed: It was refused, or not answered to its end.
    """
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        "Connection: close\r\n\r\n"
    )
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(head.encode() + content)
        await writer.drain()
        status = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
        if " 200 " not in status:
            raise RequestFailed(f"{status}: {(await reader.read()).decode()}")
        pieces, reason, usage = [], None, None
        async for line in lines_of(reader):
            if not line.startswith(b"data: {"):
                continue
            now, entries = time.perf_counter() - start, json.loads(line[len(b"data: ") :])
            if "error" in entries:
                raise RequestFailed(entries["error"]["message"])
            usage = entries.get("usage", usage)
            for choice in entries["choices"]:
                reason = choice["finish_reason"]
                pieces += [now] if choice["text"] else []
    finally:
        writer.close()
    if reason is None or usage is None or not pieces:
        raise RequestFailed("the stream ended before the text did")
    return Answer(usage["prompt_tokens"], usage["completion_tokens"], pieces)


async def load(address: tuple[str, int], bodies: list[list[dict]]) -> list[Answer]:
    """So many clients at once as there are lists, each with its requests one behind the other."""

    async def client(requests: list[dict]) -> list[Answer]:
        return [await ask(address, body) for body in requests]

    answers = await asyncio.gather(*(client(requests) for requests in bodies))
    return [answer for of_client in answers for answer in of_client]


def measure(address: tuple[str, int], options: argparse.Namespace, clients: int) -> dict:
    """The figures of so many clients at once."""
    rng = random.Random(f"{options.seed} {clients}")
    asyncio.run(load(address, [[drawn(options, rng)] for _ in range(clients)]))  # warms up
    bodies = [[drawn(options, rng) for _ in range(options.requests)] for _ in range(clients)]
    start, busy = time.perf_counter(), time.process_time()
    answers = asyncio.run(load(address, bodies))
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    first = [answer.pieces[0] for answer in answers]
    per_token = [answer.per_token for answer in answers if answer.per_token is not None]
    longest = [answer.longest for answer in answers]
    tokens = sum(answer.tokens for answer in answers)
    return {
        "clients": clients,
        "requests": len(answers),
        "prompt_tokens": sum(answer.prompt_tokens for answer in answers),
        "tokens": tokens,
        "seconds": seconds,
        "requests_per_second": len(answers) / seconds,
        "tokens_per_second": tokens / seconds,
        "first_token_ms": milliseconds(first),
        "per_token_ms": milliseconds(per_token),
        "longest_ms": milliseconds(longest),
        "client_busy": busy / seconds,
    }


def milliseconds(seconds: list[float]) -> dict[str, float] | None:
    """The median, and what 95 % do not exceed."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    most = ordered[-(-95 * len(ordered) // 100) - 1]
    return {"median": median(ordered) * 1e3, "95 %": most * 1e3}


def line(found: dict) -> str:
    """The figures of one number of clients, for people."""
    pairs = {
        name: f"{found[key]['median']:,.1f}, {found[key]['95 %']:,.1f}" if found[key] else "-"
        for name, key in (
            ("first token", "first_token_ms"),
            ("per token", "per_token_ms"),
            ("longest wait", "longest_ms"),
        )
    }
    return (
        f"{found['clients']} clients, {found['requests']} requests of {found['prompt_tokens']:,} "
        f"tokens in {found['seconds']:.2f} s: {found['requests_per_second']:.2f} requests/s, "
        f"{found['tokens_per_second']:,.0f} tokens/s; ms (median, 95 %): "
        + "; ".join(f"{name} {values}" for name, values in pairs.items())
        + f"; the clients' process is {found['client_busy']:.0%} busy"
    )


def start_server(arguments: list[str]) -> tuple[subprocess.Popen, tuple[str, int] | None]:
    """The server's process, and where it listens; None, if it has ended before it did."""
    command = [sys.executable, "-m", "demos.serve", "--port", "0", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8")
    for said in process.stdout:
        print(said, end="", flush=True)
        if found := re.match(r"listening on (http://\S+)", said):
            parts = urlsplit(found[1])
            return process, (parts.hostname, parts.port)
    return process, None


def end_server(process: subprocess.Popen) -> None:
    """Interrupts it, and waits."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    options, of_server = parse_options(arguments)
    process, address = start_server(of_server)
    results = []
    try:
        if address is None:
            return 2
        for clients in options.clients:
            results.append(measure(address, options, clients))
            print(line(results[-1]), flush=True)
    except (RequestFailed, OSError, asyncio.IncompleteReadError) as error:
        print(f"benchmark: a request failed: {error}", file=sys.stderr)
        return 1
    finally:
        end_server(process)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
