"""Cross entropy: its loss, its loss and gradient, and both behind a linear layer.

Minimum bytes. The loss: read the logits. With the gradient: read them, and write as much. Behind a
linear layer products are the limit: the FLOPs of the logits, of dx and of dweight.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from benchmarks import harness
from benchmarks import peers_cross_entropy as peers
from benchmarks.harness import OURS, Call, Case, Expected, Headline, HostCalls, Inputs, Panel
from thunderkittens.testing import tolerance

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
PANELS = (Panel("cross entropy", False, 1), Panel("cross entropy, with gradient", True, 1))
HEADLINES = (
    Headline(
        "cross entropy with its gradient, 8192 × 50304", "cross_entropy_backward", "8192 x 50304"
    ),
)
SHAPES = (
    (8192, 50304, "bf16"),
    (8192, 50257, "bf16"),  # rows that are not 16-byte aligned
    (4096, 128256, "bf16"),  # rows that do not fit in shared memory
    (16384, 32000, "bf16"),
    (65536, 1000, "bf16"),
    (4096, 50304, "fp32"),
    (8, 50304, "bf16"),  # small
)
LINEAR_SHAPES = ((16384, 768, 50304), (8192, 4096, 128256))  # rows, hidden, width; bf16


def minimum_bytes(gradient: bool, rows: int, width: int, size: int) -> int:
    """Bytes that any implementation must move; `size` is that of one logit."""
    return (2 if gradient else 1) * rows * width * size + 8 * rows


def make_inputs(rows: int, width: int, dtype: torch.dtype, seed: int) -> Inputs:
    """logits [rows, width] of `dtype`, normally distributed; targets [rows]."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)
    options = {"device": harness.DEVICE, "generator": random}
    logits = torch.randn(rows, width, dtype=dtype, **options)
    return {"logits": 2 * logits, "targets": torch.randint(0, width, (rows,), **options)}


def expected(i: Inputs, gradient: bool) -> Expected:
    """The outputs in float64 and their bounds."""
    return tolerance.cross_entropy(i["logits"], i["targets"])[: 2 if gradient else 1]


def ours(i: Inputs) -> Call:
    """`cross_entropy` without a gradient."""
    run = torch.ops.thunderkittens.cross_entropy
    return lambda: (run(i["logits"], i["targets"]),)


def ours_gradient(i: Inputs) -> Call:
    """What `cross_entropy` computes where a gradient is recorded."""
    run = torch.ops.thunderkittens.cross_entropy_forward
    return lambda: run(i["logits"], i["targets"])


LOSS = {OURS: ours, "torch": peers.torch_loss, "torch.compile": peers.compiled_loss}
GRADIENT = {
    OURS: ours_gradient,
    "torch": peers.torch_gradient,
    "torch.compile": peers.compiled_gradient,
    "Liger": peers.liger_gradient,
    "flash-attn Triton": peers.flash_gradient,
}


def make_linear_inputs(rows: int, hidden: int, width: int, seed: int) -> Inputs:
    """x [rows, hidden], weight [width, hidden] in bf16, normally distributed; targets [rows]."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)
    options = {"device": harness.DEVICE, "generator": random}
    return {
        "x": torch.randn(rows, hidden, **options).bfloat16(),
        "weight": (torch.randn(width, hidden, **options) / hidden**0.5).bfloat16(),
        "targets": torch.randint(0, width, (rows,), **options),
    }


def expected_linear(i: Inputs) -> Expected:
    """The loss in float64, and the gradients of the same formula in float32.

    Logits are off by a unit of bf16 each, and so are their gradients, which both sums add up: a
    relative error of 2⁻⁷ of a row's largest entry, four times that allowed.
    """
    x, weight = (i[name].float().requires_grad_() for name in ("x", "weight"))
    total = torch.zeros((), device=harness.DEVICE)
    for first in range(0, len(x), 1024):
        logits, targets = x[first : first + 1024] @ weight.T, i["targets"][first : first + 1024]
        loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        (loss / len(x)).backward()
        total += loss.detach() / len(x)
    wants = [total.double(), x.grad.double(), weight.grad.double()]
    return [(want, 2**-5 * want.abs().amax(-1, keepdim=want.dim() > 0)) for want in wants]


def ours_linear(i: Inputs) -> Call:
    """`linear_cross_entropy`, forward and backward."""
    import thunderkittens

    return peers.linear_gradients(i, thunderkittens.linear_cross_entropy)


LINEAR = {
    OURS: ours_linear,
    "torch": peers.torch_linear,
    "torch.compile": peers.compiled_linear,
    "Liger": peers.liger_linear,
}


def cases(quick: bool = False) -> Iterator[Case]:
    """The loss, then with its gradient, at each shape; then the linear layer; `quick`: a few."""
    for op, contenders in (("cross_entropy", LOSS), ("cross_entropy_backward", GRADIENT)):
        gradient = op.endswith("_backward")
        for rows, width, name in SHAPES[:2] if quick else SHAPES:
            size = DTYPES[name].itemsize
            yield Case(
                op=op,
                shape=f"{rows} x {width}",
                dtype=name,
                work=minimum_bytes(gradient, rows, width, size),
                unit="TB/s",
                inputs=partial(make_inputs, rows, width, DTYPES[name]),
                expected=partial(expected, gradient=gradient),
                contenders=contenders,
                resident=(2 if gradient else 1) * rows * width * size,
            )
    for rows, hidden, width in LINEAR_SHAPES[:1] if quick else LINEAR_SHAPES:
        yield Case(
            op="linear_cross_entropy_backward",
            shape=f"{rows} x {hidden} x {width}",
            dtype="bf16",
            work=6 * rows * hidden * width,
            unit="TFLOP/s",
            inputs=partial(make_linear_inputs, rows, hidden, width),
            expected=expected_linear,
            contenders=LINEAR,
            resident=4 * (rows + width) * hidden,
        )


def host_calls(gradient: bool) -> HostCalls:
    """For bench_host: op -> contender -> call."""
    import thunderkittens

    (x,) = harness.host_tensors(1, (16, 1024), gradient)
    targets = torch.randint(0, 1024, (16,), device=harness.DEVICE)
    return {
        "cross_entropy": {
            OURS: lambda: thunderkittens.cross_entropy(x, targets),
            "torch": lambda: torch.nn.functional.cross_entropy(x, targets),
        }
    }
