"""Layer norm, forward and backward: memory-bound, so every figure is minimum bytes / time.

Minimum bytes. Forward: read x, weight, bias; write y. Backward: read x, dy, weight and the two
statistics of each row; write dx, dweight, dbias.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from benchmarks import harness, peers
from benchmarks.harness import OURS, Call, Case, Expected, Inputs
from thunderkittens.testing import tolerance

EPS = 1e-5
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SHAPES = (
    (16384, 1024, "bf16"),
    (16384, 4096, "bf16"),
    (16384, 8192, "bf16"),
    (8192, 768, "bf16"),
    (16384, 4096, "fp16"),
    (16384, 4096, "fp32"),
    (16384, 4095, "bf16"),  # rows that are not 16-byte aligned
)


def minimum_bytes(backward: bool, rows: int, width: int, size: int) -> int:
    """Bytes that any implementation must move; `size` is that of one element."""
    tensor, vector = rows * width * size, width * size
    return 3 * tensor + 3 * vector + 8 * rows if backward else 2 * tensor + 2 * vector


def make_inputs(rows: int, width: int, dtype: torch.dtype, seed: int) -> Inputs:
    """x, dy [rows, width]; weight, bias [width]; all of `dtype`, normally distributed."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=harness.DEVICE, generator=random).to(dtype)

    return {
        "x": normal(rows, width),
        "dy": normal(rows, width),
        "weight": 1 + normal(width) / 4,
        "bias": normal(width) / 4,
    }


def expected(i: Inputs, backward: bool) -> Expected:
    """The outputs in float64 and their bounds."""
    if backward:
        return tolerance.layer_norm_backward(i["dy"], i["x"], i["weight"], i["bias"], EPS)
    return [tolerance.layer_norm(i["x"], i["weight"], i["bias"], EPS)]


def ours(i: Inputs) -> Call:
    """`layer_norm` without gradients."""
    run = torch.ops.thunderkittens.layer_norm
    return lambda: (run(i["x"], i["weight"], i["bias"], EPS),)


def ours_backward(i: Inputs) -> Call:
    """`layer_norm_backward` with all three gradients, the statistics given."""
    forward = torch.ops.thunderkittens.layer_norm_forward
    backward = torch.ops.thunderkittens.layer_norm_backward
    mean, rstd = forward(i["x"], i["weight"], i["bias"], EPS)[1:]
    return lambda: backward(i["dy"], i["x"], i["weight"], i["bias"], mean, rstd, [True] * 3)


FORWARD = {
    OURS: ours,
    "torch": peers.torch_layer_norm,
    "torch.compile": peers.compiled_layer_norm,
    "Liger": peers.liger_layer_norm,
    "flash-attn Triton": peers.flash_layer_norm,
}
BACKWARD = {
    OURS: ours_backward,
    "torch": peers.torch_layer_norm_backward,
    "torch.compile": peers.compiled_layer_norm_backward,
    "Liger": peers.liger_layer_norm_backward,
    "flash-attn Triton": peers.flash_layer_norm_backward,
}


def cases(quick: bool = False) -> Iterator[Case]:
    """Forward then backward at each shape; `quick` keeps the first two shapes."""
    for op, contenders in (("layer_norm", FORWARD), ("layer_norm_backward", BACKWARD)):
        backward = op.endswith("_backward")
        for rows, width, name in SHAPES[:2] if quick else SHAPES:
            size = DTYPES[name].itemsize
            yield Case(
                op=op,
                shape=f"{rows} x {width}",
                dtype=name,
                work=minimum_bytes(backward, rows, width, size),
                unit="TB/s",
                inputs=partial(make_inputs, rows, width, DTYPES[name]),
                expected=partial(expected, backward=backward),
                contenders=contenders,
                resident=(3 if backward else 2) * rows * width * size,
            )
