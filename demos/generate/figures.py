"""What generating costs: times, bytes, and the rate that the device copies at."""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from models.decoding import Decoder

_REHEARSALS = 5  # prompts that are read before the one that is shown, on a GPU; the first warms up


@dataclass
class Run:
    """A batch that was generated: each row's tokens, and when they came.

    `first` are the times to the first token, in seconds, of which one reading counts as any other;
    `steps` those between tokens.
    """

    rows: list[list[int]]
    first: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)

    @property
    def to_first(self) -> float:
        """Seconds from the prompts' tokens to the first new ones, on the host: the median."""
        return statistics.median(self.first)

    @property
    def step(self) -> float | None:
        """Seconds between tokens: the median; None where there was no second token.

        The first step began before the first token was looked at, and does not count if there is
        another.
        """
        return statistics.median(self.steps[1:] or self.steps) if self.steps else None


def timed(
    generate: Callable[[int], Iterator[list[int | None]]],
    limit: int,
    rehearse: bool,
    on_tokens: Callable[[list[int | None]], None] | None = None,
) -> Run:
    """Runs `generate(limit)` and notes when tokens come; `rehearse`: after reading the prompts."""
    run = Run([])
    for rehearsal in range(_REHEARSALS if rehearse else 0):
        start = time.perf_counter()
        stream = generate(1)
        next(stream)
        if rehearsal:
            run.first.append(time.perf_counter() - start)
        stream.close()
    mark = time.perf_counter()
    for count, tokens in enumerate(generate(limit)):
        now = time.perf_counter()
        (run.steps if count else run.first).append(now - mark)
        run.rows = run.rows or [[] for _ in tokens]
        for row, token in zip(run.rows, tokens, strict=True):
            if token is not None:
                row.append(token)
        if on_tokens is not None:
            on_tokens(tokens)
        mark = now
    return run


def bytes_of_median_step(decoder: Decoder, prompts: list[list[int]], run: Run) -> int:
    """What the step in the middle of a run had to move."""
    middle = len(run.steps) // 2
    lengths = [
        len(prompt) + middle if len(row) > middle else 0
        for prompt, row in zip(prompts, run.rows, strict=True)
    ]
    return decoder.bytes_of_step(lengths)


def copy_rate(device: torch.device) -> float:
    """Bytes a second that a large copy of random data reads and writes: about the limit."""
    on_gpu = device.type == "cuda"
    source = torch.randint(
        256, ((1 << 30) if on_gpu else (1 << 26),), dtype=torch.uint8, device=device
    )
    target, times = torch.empty_like(source), []
    for _ in range(12):
        start = time.perf_counter()
        for _ in range(4):
            target.copy_(source)
        if on_gpu:
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - start) / 4)
    return 2 * source.nbytes / statistics.median(times[2:])


def of_run(run: Run, bytes_of_step: int) -> dict:
    """The figures of one side, for people and for --json."""
    step, rows = run.step, len(run.rows)
    return {
        "to_first_token_ms": run.to_first * 1e3,
        "step_ms": None if step is None else step * 1e3,
        "tokens_per_second": None if step is None else rows / step,
        "bytes_per_second": None if step is None else bytes_of_step / step,
    }


def line(name: str, figures: dict, copy: float) -> str:
    """A line of them, with the rate of a copy beside."""
    text = f"{name}: first token after {figures['to_first_token_ms']:.1f} ms"
    if figures["step_ms"] is not None:
        rate = figures["bytes_per_second"]
        text += f", then {figures['step_ms']:.2f} ms a step, "
        text += f"{figures['tokens_per_second']:,.1f} tokens/s; it moves {rate / 1e9:,.1f} GB/s"
        text += f", {rate / copy:.0%} of a copy's {copy / 1e9:,.1f}"
    return text


def peak_bytes(device: torch.device) -> int | None:
    """The most memory that torch has held on a GPU; None elsewhere."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
