"""Serves a local Llama, Qwen or Mistral over HTTP: OpenAI's completions, with continuous batching.

    python -m demos.serve --model FOLDER
    python -m demos.serve --random tiny --port 8001

Nothing is downloaded, and only this machine is listened to unless --host says otherwise. SIGINT
ends it: no request is taken any more, and those that there are have --grace seconds. A second one
ends these, too.

Exit codes: 0 ended by SIGINT; 1 the model failed; 2 bad arguments, checkpoint or address.
"""

import argparse
import asyncio
import contextlib
import socket
import sys
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
import uvicorn
from app import Service, make_app
from batch import Batch
from engine import CHUNK, Engine
from models import checkpoint
from models.cache import PAGE
from models.command_line import number, text
from models.llama import Config
from models.llama_command_line import add_options, load_model, read_config, served_by
from rich.console import Console

import thunderkittens


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="serve", description=__doc__.split("\n")[0])
    add_options(parser)
    count = number(int, 1, 1 << 24)
    parser.add_argument("--host", type=text, default="127.0.0.1", help="an address to listen on")
    parser.add_argument("--port", type=number(int, 0, 65535), default=8000, help="0: any")
    parser.add_argument("--name", type=text, help="the model's in requests (default: the folder's)")
    parser.add_argument("--batch", type=number(int, 1, 4096), default=16, help="texts at a time")
    parser.add_argument("--context", type=count, help="tokens of a text (default: up to 4096)")
    parser.add_argument(
        "--page", type=number(int, 1, 1 << 16), default=PAGE, help="tokens of a page"
    )
    parser.add_argument("--pages", type=count, help="of the cache (default: for a full batch)")
    chunk = "tokens of a prompt between two steps"
    parser.add_argument("--prefill-chunk", type=count, default=CHUNK, help=chunk)
    parser.add_argument("--queue", type=count, default=256, help="requests that may wait")
    parser.add_argument("--max-prompt-tokens", type=count, help="of a request (default: --context)")
    parser.add_argument("--max-tokens", type=count, help="of an answer (default: --context)")
    parser.add_argument("--max-body", type=count, default=1 << 20, help="bytes of a request")
    parser.add_argument("--grace", type=number(float, 0.0, 86400.0), default=30.0, help="seconds")
    return parser.parse_args(arguments)


class Server(uvicorn.Server):
    """uvicorn's, which says where it listens, and closes the engine before it waits for answers."""

    def __init__(self, config: uvicorn.Config, engine: Engine, console: Console, grace: float):
        super().__init__(config)
        self.engine, self.console, self.grace = engine, console, grace

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens."""
        await super().startup(sockets)
        host, port = sockets[0].getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        self.console.print(f"listening on http://{host}:{port}", style="bold", markup=False)

    def handle_exit(self, number: int, frame: FrameType | None) -> None:
        """Begins to end; the second time, without the rest of --grace."""
        if self.should_exit:
            # By the loop: this may have interrupted whoever holds the engine's lock.
            asyncio.get_running_loop().call_soon_threadsafe(self.engine.close, 0)
        else:
            super().handle_exit(number, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends: requests that there are end by themselves, or by the engine after --grace."""
        self.engine.close(self.grace)
        self.console.print("shutting down: no request is taken any more")
        await super().shutdown(sockets)


def make_engine(options: argparse.Namespace, config: Config, console: Console) -> Engine:
    """The model, its cache and its scheduler, on the options' device."""
    context = options.context or min(config.max_position_embeddings, 4096)
    if context > config.max_position_embeddings:
        positions = config.max_position_embeddings
        raise ValueError(f"--context must be at most the model's {positions} positions")
    pages = options.pages or options.batch * -(-context // options.page)
    model = load_model(options, config, console)
    with thunderkittens.backend(options.backend):
        narrow = options.cache_dtype == "fp8"
        batch = Batch(model, options.batch, context, options.page, pages, narrow=narrow)
        for line in served_by(model, batch.cache):
            console.print(line, markup=False)
    ends = () if options.random else None
    return Engine(batch, options.queue, ends, chunk=options.prefill_chunk)


def bound(host: str, port: int) -> socket.socket:
    """A socket with this address, which does not listen yet."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise OSError(f"cannot listen on {host}, port {port} ({error.strerror})") from error
    return made


def serve(options: argparse.Namespace, console: Console, listener: socket.socket) -> int:
    """Runs until a signal comes; returns the exit code."""
    config, _, title = read_config(options)
    tokenizer = None if options.random else checkpoint.load_tokenizer(options.model, config)
    engine = make_engine(options, config, console)
    context = engine.batch.capacity
    name = options.name or Path(options.random or options.model).resolve().name
    service = Service(
        name,
        tokenizer,
        options.max_prompt_tokens or context,
        options.max_tokens or context,
        options.max_body,
    )
    pages, page = engine.batch.cache.shape
    console.print(
        f"{title}: {options.batch} texts of up to {context:,} tokens at a time, over {pages:,} "
        f"pages of {page}" + (" in fp8" if engine.batch.cache.narrow else ""),
        style="bold",
        markup=False,
    )
    settings = uvicorn.Config(
        make_app(engine, service),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=int(options.grace) + 10,
    )
    server = Server(settings, engine, console, options.grace)

    def stop() -> None:
        server.should_exit = True

    engine.on_failure = stop
    engine.start(options.backend)
    try:
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises the signal again when it ends
            server.run([listener])
    finally:
        engine.close(0)
        engine.join()
    if engine.failure is not None:
        message = (str(engine.failure).splitlines() or [type(engine.failure).__name__])[0]
        print(f"serve: the model has failed: {message}", file=sys.stderr)
        return 1
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    options = parse_options(arguments)
    console = Console(highlight=False, soft_wrap=True)
    try:
        with bound(options.host, options.port) as listener:  # before the model is read
            return serve(options, console, listener)
    except (ValueError, OSError, torch.OutOfMemoryError) as error:
        print(f"serve: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while the model was read
        return 130


if __name__ == "__main__":
    sys.exit(main())
