"""What the demos' command lines share: types whose refusals end in a sentence, and pictures."""

import argparse
import io
import math
import re
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.text import Text


def number(kind: type, low: float, high: float = math.inf) -> Callable[[str], float]:
    """A finite number of type `kind` in [low, high]."""

    def parse(text: str) -> float:
        value = kind(text)
        if not (math.isfinite(value) and low <= value <= high):
            bounds = f"at least {low}" if high == math.inf else f"in {low} … {high}"
            raise argparse.ArgumentTypeError(f"must be {bounds}, got {text}")
        return value

    parse.__name__ = kind.__name__  # argparse: invalid int value: 'many'
    return parse


def text(argument: str) -> str:
    """Text that is valid Unicode: what a shell passes on need not be."""
    argument.encode()
    return argument


def device(text: str) -> torch.device:
    """A device that this machine has; `auto` is the GPU if there is one."""
    if text == "auto":
        text = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=text).device
    except (RuntimeError, AssertionError) as error:  # torch without CUDA raises the second
        message = str(error).splitlines()[0]
        raise argparse.ArgumentTypeError(f"{text} cannot be used ({message})") from error


def picture(console: Console, path: Path, title: str, width: int = 100) -> None:
    """Writes what a recording console has printed as an SVG of `width` characters a line."""
    page = Console(record=True, width=width, file=io.StringIO(), color_system="truecolor")
    page.print(Text.from_ansi(console.export_text(clear=False, styles=True).strip()))
    svg = page.export_svg(title=title, unique_id="terminal")
    # It would load a font from the network; without, it is the viewer's own.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    path.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")
