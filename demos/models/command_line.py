"""Types for argparse that the demos share: what they refuse ends in a sentence and exit code 2."""

import argparse
import math
from collections.abc import Callable

import torch


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
