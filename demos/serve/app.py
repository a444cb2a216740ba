"""The HTTP side of the server: FastAPI on an engine that computes in a thread of its own."""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from engine import Engine
from fastapi import FastAPI
from fastapi import Request as Http
from fastapi.responses import JSONResponse, Response, StreamingResponse
from metrics import CONTENT_TYPE
from models.text_stream import TextStream
from protocol import (
    Answer,
    BadRequest,
    Completion,
    error_entries,
    error_response,
    event,
    read_completion,
)
from request import Closed, QueueFull, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from tokenizers import Tokenizer

BODY_SECONDS = 10.0  # how long a body may take to come


@dataclass(frozen=True)
class Service:
    """What is served, and what a request may ask for."""

    name: str
    tokenizer: Tokenizer | None  # None: prompts are tokens, and so are texts
    prompt_tokens: int
    max_tokens: int
    body_bytes: int


class Mailbox:
    """From the engine's thread to queues of the event loop.

    Waking the loop costs a system call, and of a step there is a token for every text: what is
    posted before the loop looks wakes it once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop = loop
        self._posted: deque[tuple[asyncio.Queue, int | str]] = deque()
        self._called = False  # the loop will look; cleared before it does, so nothing is left lying

    def post(self, to: asyncio.Queue, what: int | str) -> None:
        """Puts it into a queue of the loop's. Of any thread."""
        self._posted.append((to, what))
        if not self._called:
            self._called = True
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._called = False
        while self._posted:
            to, what = self._posted.popleft()
            to.put_nowait(what)


class Stream:
    """The text of one request that is with the engine, in pieces as they come."""

    def __init__(
        self,
        service: Service,
        engine: Engine,
        mailbox: Mailbox,
        asked: Completion,
        prompt: list[int],
    ):
        self.engine, self.ends = engine, engine.ends
        self.text = TextStream(service.tokenizer, asked.stop)
        self.outcome: str | None = None  # when it has ended
        self.count = 0  # tokens of the answer
        self._events: asyncio.Queue[int | str] = asyncio.Queue()
        tell = partial(mailbox.post, self._events)
        seed = secrets.randbits(63) if asked.seed is None else asked.seed
        self.request = Request(prompt, asked.max_tokens, asked.sampling, seed, tell, tell)
        engine.submit(self.request)

    async def pieces(self) -> AsyncIterator[str]:
        """What is generated; then `outcome` says how it ended."""
        while isinstance(token := await self._events.get(), int):
            if self.text.stopped:
                continue  # until the engine has heard of it
            self.count += 1
            if piece := "" if token in self.ends else self.text.step(token):
                yield piece
            if self.text.stopped:
                self.engine.cancel(self.request, "stop")
        if piece := self.text.rest():
            yield piece
        self.outcome = "stop" if self.text.stopped else token


def make_app(engine: Engine, service: Service) -> FastAPI:
    """The application; the engine is started and ended by whoever runs it."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)  # its pages load from elsewhere
    watchers: set[asyncio.Task] = set()
    mailbox: Mailbox | None = None

    def running_mailbox() -> Mailbox:
        """The running loop's, which is known from the first request on."""
        nonlocal mailbox
        loop = asyncio.get_running_loop()
        if mailbox is None or mailbox.loop is not loop:
            mailbox = Mailbox(loop)
        return mailbox

    @app.get("/health")
    async def health() -> Response:
        if engine.closed:
            return error_response(BadRequest("the server is shutting down", 503))
        return JSONResponse({"status": "ok"})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(engine.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/v1/models")
    async def models() -> dict:
        entry = {"id": service.name, "object": "model", "created": 0, "owned_by": "local"}
        return {"object": "list", "data": [entry]}

    @app.post("/v1/completions")
    async def completions(http: Http) -> Response:
        try:
            asked = await _read(http, service)
            prompt = await _prompt(asked, service)
            stream = _submit(service, engine, running_mailbox(), asked, prompt)
        except BadRequest as error:
            refused = error.status in (429, 503)
            engine.metrics.ended("refused" if refused else "invalid")
            return error_response(error)
        except ClientDisconnect:
            engine.metrics.ended("cancelled")
            return Response(status_code=400)  # which nobody reads
        watcher = asyncio.create_task(_watch(http, engine, stream.request))
        watchers.add(watcher)  # the loop itself keeps no task alive
        watcher.add_done_callback(watchers.discard)
        answer = Answer(service.name)
        echo = _echo(asked, service, prompt) if asked.echo else ""
        if asked.stream:
            chunks = _chunks(stream, answer, asked, echo, len(prompt))
            return StreamingResponse(chunks, media_type="text/event-stream")
        text = echo + "".join([piece async for piece in stream.pieces()])
        if stream.outcome not in ("stop", "length"):
            return error_response(_failure(engine))
        usage = answer.usage(len(prompt), stream.count)
        return JSONResponse(answer.of(text, stream.outcome, usage))

    @app.exception_handler(HTTPException)
    async def other(http: Http, error: HTTPException) -> Response:
        said = {404: "there is no such page", 405: "this page does not take that method"}
        message = said.get(error.status_code, str(error.detail))
        return error_response(BadRequest(message, error.status_code))

    @app.exception_handler(Exception)
    async def unexpected(http: Http, error: Exception) -> Response:
        return error_response(BadRequest("the server has failed on this request", 500))

    return app


async def _read(http: Http, service: Service) -> Completion:
    """The request of the body, if it comes in time and is not too large."""
    kind = http.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":  # else a page of any site could post here, in a user's browser
        raise BadRequest("Content-Type must be application/json", 415)
    try:
        body = await asyncio.wait_for(_body(http, service.body_bytes), BODY_SECONDS)
    except asyncio.TimeoutError as error:
        raise BadRequest(f"the body took longer than {BODY_SECONDS:g} s", 408) from error
    asked = read_completion(body)
    if asked.model not in (None, service.name):
        raise BadRequest(
            f"there is no model {asked.model!r:.80}, only {service.name!r}", 404, "model"
        )
    if asked.max_tokens > service.max_tokens:
        message = f"max_tokens must be at most {service.max_tokens}, got {asked.max_tokens}"
        raise BadRequest(message, parameter="max_tokens")
    return asked


async def _body(http: Http, limit: int) -> bytes:
    body = bytearray()
    async for piece in http.stream():
        body += piece
        if len(body) > limit:
            raise BadRequest(f"the body must be at most {limit} bytes", 413)
    return bytes(body)


async def _prompt(asked: Completion, service: Service) -> list[int]:
    """The prompt's tokens."""
    prompt, tokenizer = asked.prompt, service.tokenizer
    if isinstance(prompt, str):
        if tokenizer is None:
            message = "prompt must be a list of tokens: this model has no tokenizer"
            raise BadRequest(message, parameter="prompt")
        prompt = (await run_in_threadpool(tokenizer.encode, prompt)).ids
    if len(prompt) > service.prompt_tokens:
        message = f"the prompt must be of at most {service.prompt_tokens} tokens, got {len(prompt)}"
        raise BadRequest(message, parameter="prompt")
    return prompt


def _echo(asked: Completion, service: Service, prompt: list[int]) -> str:
    """The prompt as text."""
    if isinstance(asked.prompt, str):
        return asked.prompt
    if service.tokenizer is None:
        return "".join(f" {token}" for token in prompt)
    return service.tokenizer.decode(prompt)


def _submit(
    service: Service, engine: Engine, mailbox: Mailbox, asked: Completion, prompt: list[int]
) -> Stream:
    try:
        return Stream(service, engine, mailbox, asked, prompt)
    except ValueError as error:
        raise BadRequest(str(error)) from error
    except QueueFull as error:
        raise BadRequest(str(error), 429) from error
    except Closed as error:
        raise BadRequest(str(error), 503) from error


async def _watch(http: Http, engine: Engine, request: Request) -> None:
    """Cancels the request when its client leaves; once it is answered, that does nothing."""
    while (await http.receive())["type"] != "http.disconnect":
        pass
    engine.cancel(request)


async def _chunks(
    stream: Stream, answer: Answer, asked: Completion, echo: str, prompt_tokens: int
) -> AsyncIterator[bytes]:
    """The events of a streamed answer."""
    if echo:
        yield event(answer.of(echo))
    async for piece in stream.pieces():
        yield event(answer.of(piece))
    if stream.outcome not in ("stop", "length"):
        yield event(error_entries(_failure(stream.engine)))
        return
    yield event(answer.of("", stream.outcome))
    if asked.stream_options.include_usage:
        usage = answer.usage(prompt_tokens, stream.count)
        yield event({**answer.head, "choices": [], "usage": usage})
    yield event("[DONE]")


def _failure(engine: Engine) -> BadRequest:
    """Why a request that was taken was not answered whole."""
    if engine.closed and engine.failure is None:
        return BadRequest("the server has shut down before the text ended", 503)
    return BadRequest("the model has failed", 500)
