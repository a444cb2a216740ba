"""Other people's kernels, as contenders: each is optional, and says why it is absent."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

import torch

from benchmarks.harness import MissingPeer


def find(module: str, attribute: str, package: str) -> Any:
    """An attribute of an optional module; raises MissingPeer when it cannot be had."""
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as problem:
        if importlib.util.find_spec(module.split(".")[0]) is None:
            raise MissingPeer(f"`{package}` is not installed") from problem
        raise MissingPeer(f"`{package}` cannot be imported: {problem}") from problem
    except AttributeError as problem:
        raise MissingPeer(f"this version of `{package}` has no {module}.{attribute}") from problem


@functools.cache
def compiled(function: Any) -> Any:
    """The function under torch.compile, one graph, specialised for each shape."""
    torch._dynamo.config.recompile_limit = 256
    return torch.compile(function, fullgraph=True, dynamic=False)
