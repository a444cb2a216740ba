"""mlp, bf16: two linear layers with gelu between them; FLOPs of their products / time.

FLOPs: 2 a row and weight forward, 4 backward. Both weights as torch.nn.Linear has them, with
biases; gelu by tanh. The gradients are those of everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional

from benchmarks import harness, peers
from benchmarks.harness import OURS, Call, Case, Expected, HostCalls, Inputs
from thunderkittens.testing import tolerance

# Rows, the width of x and y, and of the hidden layer: GPT-2's sizes, and a larger one's.
SHAPES = (
    (65536, 768, 3072),
    (8192, 768, 3072),
    (16384, 1024, 4096),
    (16384, 1600, 6400),
    (16384, 2048, 8192),
)
GIVEN = ("x", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias")


def make_inputs(rows: int, width: int, hidden: int, seed: int) -> Inputs:
    """x, both layers and dy, normally distributed."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)

    def normal(*sizes: int, scale: float = 1.0) -> torch.Tensor:
        values = torch.randn(sizes, device=harness.DEVICE, generator=random)
        return (values * scale).to(torch.bfloat16)

    return {
        "x": normal(rows, width),
        "fc1_weight": normal(hidden, width, scale=width**-0.5),
        "fc1_bias": normal(hidden),
        "fc2_weight": normal(width, hidden, scale=hidden**-0.5),
        "fc2_bias": normal(width),
        "dy": normal(rows, width),
    }


def formula(*given: torch.Tensor) -> torch.Tensor:
    """What torch computes, and torch.compile is given."""
    x, w1, b1, w2, b2 = given
    hidden = functional.linear(x, w1, b1)
    return functional.linear(functional.gelu(hidden, approximate="tanh"), w2, b2)


def ours(*given: torch.Tensor) -> torch.Tensor:
    """`mlp`."""
    import thunderkittens

    return thunderkittens.mlp(*given, approximate="tanh")


def expected(i: Inputs, backward: bool) -> Expected:
    """Each output in float64, and its bound: seven roundings one behind another.

    The error of a product of rounded numbers is, of unrelated ones, that of a random walk: what is
    rounded loses 2⁻⁹ of its size, on the average, of which twelve are allowed; the size is the root
    mean square of a row or, if that is more, of a column: where a bias of the hidden layer is
    large, all of that column of its weights' gradient is a sum of large, rounded numbers.
    """
    wide = [i[name].double().requires_grad_() for name in GIVEN]
    y = formula(*wide)
    results = torch.autograd.grad(y, wide, i["dy"].double()) if backward else [y.detach()]
    allowed = 12 * tolerance.unit(torch.bfloat16)
    bounds = []
    for want in results:
        row, column = (want.square().mean(d, keepdim=True).sqrt() for d in (-1, 0))
        size = torch.maximum(row, column)
        bounds.append((want, allowed * torch.maximum(want.abs(), size)))
    return bounds


def call_of(function, i: Inputs, backward: bool) -> Call:
    """The forward without autograd, or the backward of one call alone."""
    if not backward:
        given = [i[name] for name in GIVEN]

        def forward():
            with torch.no_grad():
                return (function(*given),)

        return forward
    leaves = [i[name].detach().requires_grad_() for name in GIVEN]
    y = function(*leaves)
    return lambda: torch.autograd.grad(y, leaves, i["dy"], retain_graph=True)


def compiled_formula(i: Inputs, backward: bool) -> Call:
    """torch's, compiled."""
    return call_of(peers.compiled(formula), i, backward)


def cases(quick: bool = False) -> Iterator[Case]:
    """Forward then backward at each shape; `quick` keeps the first."""
    contenders = {
        OURS: partial(call_of, ours),
        "torch": partial(call_of, formula),
        "torch.compile": compiled_formula,
    }
    for backward in (False, True):
        for rows, width, hidden in SHAPES[:1] if quick else SHAPES:
            yield Case(
                op="mlp_backward" if backward else "mlp",
                shape=f"{rows} x {width} x {hidden}",
                dtype="bf16",
                work=(8 if backward else 4) * rows * width * hidden,
                unit="TFLOP/s",
                inputs=partial(make_inputs, rows, width, hidden),
                expected=partial(expected, backward=backward),
                contenders={
                    who: partial(call, backward=backward) for who, call in contenders.items()
                },
                resident=2 * rows * (3 * width + 3 * hidden),
            )


def host_calls(gradient: bool) -> HostCalls:
    """For bench_host: op -> contender -> call."""
    import thunderkittens

    x, w1, w2 = harness.host_tensors(3, (64, 64), gradient)
    return {
        "mlp": {
            OURS: lambda: thunderkittens.mlp(x, w1, None, w2, None),
            "torch": lambda: functional.linear(functional.gelu(functional.linear(x, w1)), w2),
        }
    }
