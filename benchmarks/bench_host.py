"""Host time per call of the public functions, return included, with the GPU's queue empty.

Tiny tensors on the GPU: what is timed is checks, dispatch, allocation, autograd and the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import configs
from benchmarks import harness
from benchmarks.harness import OURS, Result, Timer

# µs, what our functions promise where there is a kernel to launch.
LIMITS = {"no gradient": 7.0, "recording a gradient": 12.0}


def promised(op: str) -> bool:
    """Whether a limit stands for an op: it has a kernel; ATen's time is not ours to promise."""
    return any(op in kernel.ops and kernel.architectures for kernel in configs.KERNELS)


def calls(gradient: bool) -> dict[str, dict[str, Callable[[], Any]]]:
    """op -> contender -> call, at sizes where the GPU is never the slower of the two."""
    import thunderkittens

    torch_attention = torch.nn.functional.scaled_dot_product_attention

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=harness.DEVICE).bfloat16().requires_grad_(gradient)

    x, weight, bias = normal(16, 1024), normal(1024), normal(1024)
    targets = torch.randint(0, 1024, (16,), device=harness.DEVICE)
    q, k, v = (normal(1, 128, 2, 64) for _ in range(3))
    qt, kt, vt = (t.detach().transpose(1, 2).requires_grad_(gradient) for t in (q, k, v))
    return {
        "layer_norm": {
            OURS: lambda: thunderkittens.layer_norm(x, weight, bias),
            "torch": lambda: torch.nn.functional.layer_norm(x, (1024,), weight, bias),
        },
        "cross_entropy": {
            OURS: lambda: thunderkittens.cross_entropy(x, targets),
            "torch": lambda: torch.nn.functional.cross_entropy(x, targets),
        },
        "attention": {
            OURS: lambda: thunderkittens.attention(q, k, v, causal=True),
            "torch": lambda: torch_attention(qt, kt, vt, is_causal=True),
        },
    }


def measure(timer: Timer, quick: bool = False) -> Iterator[Result]:
    """One result per op and mode; `quick` changes nothing: this takes a second."""
    del quick
    for mode, limit in LIMITS.items():
        for op, contenders in calls(mode != "no gradient").items():
            result = Result(op, "tiny", mode, "µs", method="host time, queue empty")
            if promised(op):
                result.yardstick, result.yardstick_rate = "limit", limit
            for name, call in contenders.items():
                result.seconds[name] = timer.host_overhead(call)
            yield result
