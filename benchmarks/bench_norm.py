"""Norms: memory-bound, so every figure is minimum bytes / time.

Minimum bytes. Forward: read x (and residual) and the parameters; write y (and the sum). Backward:
read dy, x or the sum, the sum's own gradient, the weight and the statistics; write each gradient
once: without dropout, and with one dtype, x and residual share theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

import thunderkittens
from benchmarks import harness, peers_norm
from benchmarks.harness import OURS, Call, Case, Expected, Headline, HostCalls, Inputs, Panel
from benchmarks.peers_norm import EPS, backward, compiled_function, forward
from thunderkittens.testing import tolerance

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
PANELS = (Panel("norms", False, 0), Panel("norms, backward", True, 1))
HEADLINES = (Headline("add_rms_norm, 16384 × 4096", "add_rms_norm", "16384 x 4096"),)

# ---- layer_norm, forward and backward by ops of their own ---------------------------------------

LAYER_EPS = 1e-5
LAYER_SHAPES = (
    (16384, 1024, "bf16"),
    (16384, 4096, "bf16"),
    (16384, 8192, "bf16"),
    (8192, 768, "bf16"),
    (16384, 4096, "fp16"),
    (16384, 4096, "fp32"),
    (16384, 4095, "bf16"),  # rows that are not 16-byte aligned
    (128, 4096, "bf16"),  # small: of a step of decoding
)


def minimum_bytes(backward: bool, rows: int, width: int, size: int) -> int:
    """Of layer_norm with weight and bias; `size` is that of one element."""
    tensor, vector = rows * width * size, width * size
    return 3 * tensor + 3 * vector + 8 * rows if backward else 2 * tensor + 2 * vector


def layer_inputs(rows: int, width: int, dtype: torch.dtype, seed: int) -> Inputs:
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


def expected_layer(i: Inputs, backward: bool) -> Expected:
    """The outputs in float64 and their bounds."""
    if backward:
        return tolerance.layer_norm_backward(i["dy"], i["x"], i["weight"], i["bias"], LAYER_EPS)
    return [tolerance.layer_norm(i["x"], i["weight"], i["bias"], LAYER_EPS)]


def ours(i: Inputs) -> Call:
    """`layer_norm` without gradients."""
    run = torch.ops.thunderkittens.layer_norm
    return lambda: (run(i["x"], i["weight"], i["bias"], LAYER_EPS),)


def ours_backward(i: Inputs) -> Call:
    """`layer_norm_backward` with all three gradients, the statistics given."""
    forward = torch.ops.thunderkittens.layer_norm_forward
    backward = torch.ops.thunderkittens.layer_norm_backward
    mean, rstd = forward(i["x"], i["weight"], i["bias"], LAYER_EPS)[1:]
    return lambda: backward(i["dy"], i["x"], i["weight"], i["bias"], mean, rstd, [True] * 3)


LAYER_FORWARD = {
    OURS: ours,
    "torch": peers_norm.torch_layer_norm,
    "torch.compile": peers_norm.compiled_layer_norm,
    "Liger": peers_norm.liger_layer_norm,
    "flash-attn Triton": peers_norm.flash_layer_norm,
}
LAYER_BACKWARD = {
    OURS: ours_backward,
    "torch": peers_norm.torch_layer_norm_backward,
    "torch.compile": peers_norm.compiled_layer_norm_backward,
    "Liger": peers_norm.liger_layer_norm_backward,
    "flash-attn Triton": peers_norm.flash_layer_norm_backward,
}


def layer_cases(quick: bool) -> Iterator[Case]:
    """Forward then backward at each shape; `quick` keeps the first two shapes."""
    for op, contenders in (("layer_norm", LAYER_FORWARD), ("layer_norm_backward", LAYER_BACKWARD)):
        backward = op.endswith("_backward")
        for rows, width, name in LAYER_SHAPES[:2] if quick else LAYER_SHAPES:
            size = DTYPES[name].itemsize
            yield Case(
                op=op,
                shape=f"{rows} x {width}",
                dtype=name,
                work=minimum_bytes(backward, rows, width, size),
                unit="TB/s",
                inputs=partial(layer_inputs, rows, width, DTYPES[name]),
                expected=partial(expected_layer, backward=backward),
                contenders=contenders,
                resident=(3 if backward else 2) * rows * width * size,
            )


# ---- rms_norm, add_layer_norm, add_rms_norm, through autograd: bf16 ------------------------------

SHAPES = ((16384, 1024), (16384, 4096), (16384, 8192), (128, 4096))
HEADS = ((4 * 4096 * 32, 64), (4 * 4096 * 32, 128))  # of queries, as they lie in a fused qkv
DROPOUT = 0.1
ALL = ("x", "residual", "weight", "bias")


def other_inputs(rows: int, width: int, heads: int, has_bias: bool, seed: int) -> Inputs:
    """x, residual, dy, dsum [rows, width]; weight, bias [width]; bf16, normally distributed.

    With `heads`, x is [rows / heads, heads, width], a slice of [rows / heads, 3 · heads, width].
    """
    random = torch.Generator(harness.DEVICE).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=harness.DEVICE, generator=random).to(torch.bfloat16)

    if heads:
        x = normal(rows // heads, 3 * heads, width)[:, :heads]
    else:
        x = normal(rows, width)
    return {
        "x": x,
        "residual": normal(*x.shape),
        "dy": normal(*x.shape),
        "dsum": normal(*x.shape),
        "weight": 1 + normal(width) / 4,
        "bias": normal(width) / 4,
        "has_bias": torch.tensor(has_bias),
    }


def expected_rms(i: Inputs, gradients: bool) -> Expected:
    """The outputs of rms_norm in float64 and their bounds."""
    if gradients:
        return tolerance.rms_norm_backward(i["dy"], i["x"], i["weight"], EPS)
    return [tolerance.rms_norm(i["x"], i["weight"], EPS)]


def expected_add(i: Inputs, gradients: bool, centred: bool) -> Expected:
    """The outputs of add_layer_norm or add_rms_norm in float64 and their bounds."""
    arguments = (i["x"], i["residual"])
    parameters = (i["weight"], i["bias"] if centred else None, EPS)
    if not gradients:
        return tolerance.add_norm(*arguments, *parameters, centred=centred)
    saved = i["x"] + i["residual"]
    found = tolerance.add_norm_backward(
        i["dy"], i["dsum"], *arguments, saved, *parameters, centred=centred
    )
    return found if centred else found[:3]


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Ours."""
    return thunderkittens.rms_norm(x, weight, EPS)


def add_norm(rms: bool, dropout_p: float):
    """Ours, as a function of x, residual, weight, bias."""

    def run(x, residual, weight, bias):
        if rms:
            return thunderkittens.add_rms_norm(x, residual, weight, eps=EPS, dropout_p=dropout_p)
        return thunderkittens.add_layer_norm(
            x, residual, weight, bias, eps=EPS, dropout_p=dropout_p
        )

    return run


RMS = {
    OURS: rms_norm,
    "torch": peers_norm.torch_rms_norm,
    "torch.compile": compiled_function(peers_norm.torch_rms_norm),
    "Liger": peers_norm.liger_rms_norm,
    "flash-attn Triton": peers_norm.flash_rms_norm,
}
ADD_LAYER = {
    OURS: add_norm(False, 0.0),
    "torch": peers_norm.torch_add_layer_norm,
    "torch.compile": compiled_function(peers_norm.torch_add_layer_norm),
    "flash-attn Triton": peers_norm.flash_add_norm(False, 0.0),
}
ADD_RMS = {
    OURS: add_norm(True, 0.0),
    "torch": peers_norm.torch_add_rms_norm,
    "torch.compile": compiled_function(peers_norm.torch_add_rms_norm),
    "Liger": peers_norm.liger_add_rms_norm,
    "flash-attn Triton": peers_norm.flash_add_norm(True, 0.0),
}
DROPPED = {  # each with a mask of its own: only the tests compare them with float64
    OURS: add_norm(False, DROPOUT),
    "torch": peers_norm.torch_dropout_layer_norm,
    "torch.compile": compiled_function(peers_norm.torch_dropout_layer_norm),
    "flash-attn Triton": peers_norm.flash_add_norm(False, DROPOUT),
}


def other_case(
    op: str, shape: tuple[int, int], contenders, *, passes: int, gradients: bool, heads: int = 0
) -> Case:
    """One case of an op; `passes`: how many tensors of x's size must be moved."""
    rows, width = shape
    adds, centred, dropped = "add" in op, "layer" in op, "dropout" in op
    expected = partial(expected_add, centred=centred) if adds else expected_rms
    names = ALL if adds else ("x", "weight")
    how = backward if gradients else forward
    tensor, vectors = rows * width * 2, (2 if centred else 1) * (2 if gradients else 1) * width * 2
    statistics = (8 if centred else 4) * rows if gradients else 0
    return Case(
        op=op + ("_backward" if gradients else ""),
        shape=f"{rows} x {width}" + (" heads" if heads else ""),
        dtype="bf16",
        work=passes * tensor + vectors + statistics,
        unit="TB/s",
        inputs=partial(other_inputs, rows, width, heads, centred),
        expected=(lambda i: []) if dropped else partial(expected, gradients=gradients),
        contenders={
            name: how(function, names, checked=not dropped) for name, function in contenders.items()
        },
        resident=passes * tensor,
    )


def other_cases(quick: bool) -> Iterator[Case]:
    """Forward then backward of each op at each shape; `quick` keeps the first shape."""
    shapes = SHAPES[:1] if quick else SHAPES
    for gradients in (False, True):
        for shape in shapes:
            passes = 3 if gradients else 2
            yield other_case("rms_norm", shape, RMS, passes=passes, gradients=gradients)
        for shape in HEADS[:1] if quick else HEADS:
            few = {name: RMS[name] for name in (OURS, "torch", "torch.compile")}
            yield other_case("rms_norm", shape, few, passes=passes, gradients=gradients, heads=32)
        for op, contenders, passes in (
            ("add_layer_norm", ADD_LAYER, 4),
            ("add_rms_norm", ADD_RMS, 4),
            ("add_layer_norm_dropout", DROPPED, 5 if gradients else 4),
        ):
            for shape in shapes:
                yield other_case(op, shape, contenders, passes=passes, gradients=gradients)


def cases(quick: bool = False) -> Iterator[Case]:
    """Of each op; `quick` keeps a few shapes."""
    yield from layer_cases(quick)
    yield from other_cases(quick)


def host_calls(gradient: bool) -> HostCalls:
    """For bench_host: op -> contender -> call."""
    x, residual = harness.host_tensors(2, (16, 1024), gradient)
    weight, bias = harness.host_tensors(2, (1024,), gradient)
    return {
        "layer_norm": {
            OURS: lambda: thunderkittens.layer_norm(x, weight, bias),
            "torch": lambda: torch.nn.functional.layer_norm(x, (1024,), weight, bias),
        },
        "rms_norm": {
            OURS: lambda: thunderkittens.rms_norm(x, weight, EPS),
            "torch": lambda: peers_norm.torch_rms_norm(x, weight),
        },
        "add_rms_norm": {
            OURS: lambda: thunderkittens.add_rms_norm(x, residual, weight, eps=EPS),
            "torch": lambda: peers_norm.torch_add_rms_norm(x, residual, weight, None),
        },
    }
