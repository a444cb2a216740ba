"""swiglu, geglu and gelu: memory-bound, so every figure is minimum bytes / time.

Minimum bytes. Gated forward: read gate, up; write y. Its backward: read dy, gate, up; write dgate,
dup. gelu forward: read x; write y. Its backward: read dy, x; write dx. gate and up are the halves
of one tensor, as a fused projection leaves them; Liger and flash-attn, whose kernels take
contiguous tensors, get those.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from benchmarks import harness
from benchmarks import peers_activation as peers
from benchmarks.harness import OURS, Call, Case, Expected, Headline, HostCalls, Inputs, Panel
from thunderkittens.testing import tolerance

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
PANELS = (Panel("activations", False, 2), Panel("activations, backward", True, 2))
HEADLINES = (Headline("swiglu, 16384 × 11008", "swiglu", "16384 x 11008"),)
NOTE = (
    "Ours, torch and torch.compile take gate and up as the halves of one projection; Liger's and "
    "flash-attn's gated kernels need contiguous tensors and get copies, whose making is not timed."
)
GATED_SHAPES = (
    (16384, 11008, "bf16"),
    (16384, 14336, "bf16"),
    (16384, 4096, "bf16"),
    (2048, 3072, "bf16"),
    (16384, 11008, "fp16"),
    (16384, 4096, "fp32"),
    (16384, 4095, "bf16"),  # rows that are not 16-byte aligned
    (128, 4096, "bf16"),  # small: of a step of decoding
)
GELU_SHAPES = (
    (16384, 3072, "bf16"),
    (16384, 4096, "bf16"),
    (2048, 3072, "bf16"),
    (16384, 4096, "fp32"),
    (128, 4096, "bf16"),
)
TENSORS = {"swiglu": 3, "swiglu_backward": 5, "geglu": 3, "geglu_backward": 5}
TENSORS |= {"gelu": 2, "gelu_backward": 3}  # read or written


def minimum_bytes(op: str, rows: int, width: int, size: int) -> int:
    """Bytes that any implementation must move; `size` is that of one element."""
    return TENSORS[op] * rows * width * size


def make_inputs(rows: int, width: int, dtype: torch.dtype, seed: int) -> Inputs:
    """gate and up, halves of one tensor; x and dy [rows, width]; normally distributed."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)

    def normal(columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, device=harness.DEVICE, generator=random).to(dtype)

    gate, up = normal(2 * width).chunk(2, dim=-1)
    return {"gate": gate, "up": up, "dy": normal(width)}


def make_gelu_inputs(rows: int, width: int, dtype: torch.dtype, seed: int) -> Inputs:
    """x and dy [rows, width], normally distributed."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)
    shape = {"device": harness.DEVICE, "generator": random}
    return {name: torch.randn(rows, width, **shape).to(dtype) for name in ("x", "dy")}


def expected(i: Inputs, op: str) -> Expected:
    """The outputs in float64 and their bounds, where 1 + tanh may cancel as in torch."""
    gate = i["x"] if op.startswith("gelu") else i["gate"]
    up = torch.ones_like(gate) if op.startswith("gelu") else i["up"]
    name = "silu" if op.startswith("swiglu") else "tanh"
    if not op.endswith("_backward"):
        return [tolerance.gated(gate, up, name, cancels=True)]
    wants = tolerance.gated_backward(i["dy"], gate, up, name, cancels=True)
    return wants[:1] if op.startswith("gelu") else wants


def ours(i: Inputs, op: str) -> Call:
    """Our op without autograd; gelus by tanh."""
    run = getattr(torch.ops.thunderkittens, op)
    if not op.startswith("swiglu"):
        run = partial(run, approximate="tanh")
    if op == "gelu":
        return lambda: (run(i["x"]),)
    if op == "gelu_backward":
        return lambda: (run(i["dy"], i["x"]),)
    if op.endswith("_backward"):
        return lambda: run(i["dy"], i["gate"], i["up"], [True] * 2)
    return lambda: (run(i["gate"], i["up"]),)


def cases(quick: bool = False) -> Iterator[Case]:
    """Forward then backward of each op at each shape; `quick` keeps the first shape."""
    for op, tensors in TENSORS.items():
        plain = op.startswith("gelu")
        shapes = GELU_SHAPES if plain else GATED_SHAPES
        shapes = shapes[:2] if op.startswith("geglu") else shapes
        for rows, width, name in shapes[:1] if quick else shapes:
            dtype = DTYPES[name]
            make = make_gelu_inputs if plain else make_inputs
            yield Case(
                op=op,
                shape=f"{rows} x {width}",
                dtype=name,
                work=minimum_bytes(op, rows, width, dtype.itemsize),
                unit="TB/s",
                inputs=partial(make, rows, width, dtype),
                expected=partial(expected, op=op),
                contenders={OURS: partial(ours, op=op), **peers.of(op)},
                resident=tensors * rows * width * dtype.itemsize,
            )


def host_calls(gradient: bool) -> HostCalls:
    """For bench_host: op -> contender -> call."""
    import thunderkittens

    gate, up = harness.host_tensors(2, (16, 1024), gradient)
    return {
        "swiglu": {
            OURS: lambda: thunderkittens.swiglu(gate, up),
            "torch": lambda: peers.FORMULAS["swiglu"]({"gate": gate, "up": up}),
        }
    }
