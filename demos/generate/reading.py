"""A live line while prompts are read."""

from collections.abc import Iterator
from contextlib import nullcontext

import torch
from rich.console import Console
from rich.live import Live
from rich.text import Text


class Reading:
    """How many layers have read the prompts, on a line that goes when the first token comes.

    A GPU's host is ahead of it, so the line counts events that the device has passed.
    """

    def __init__(self, console: Console, tokens: int, layers: int, on_gpu: bool):
        self.console, self.tokens, self.layers, self.on_gpu = console, tokens, layers, on_gpu
        self.begun: list[torch.cuda.Event | None] = []

    def on_layer(self, layer: int) -> None:
        """A layer begins."""
        event = torch.cuda.Event() if self.on_gpu else None
        if event is not None:
            event.record()
        self.begun.append(event)

    def __rich__(self) -> Text:
        """The line as it is now."""
        done = sum(event is None or event.query() for event in list(self.begun))
        return Text(f"reading {self.tokens:,} tokens: layer {done} of {self.layers}", style="dim")

    def over(self, tokens: Iterator[list[int | None]]) -> Iterator[list[int | None]]:
        """Passes on what is generated, under the line until the first of it."""
        try:
            live = Live(self, console=self.console, transient=True, refresh_per_second=10)
            with live if self.console.is_terminal else nullcontext():
                first = next(tokens)
            yield first
            yield from tokens
        finally:
            tokens.close()
