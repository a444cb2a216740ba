"""linear of few rows, bf16: memory-bound, so every figure is the weight's bytes / time.

Minimum bytes: read the weight. (x and y are less than a hundredth of it.)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from benchmarks import harness, peers
from benchmarks.harness import OURS, Call, Case, Expected, HostCalls, Inputs, Panel
from thunderkittens.testing import tolerance

PANELS = (Panel("linear, few rows", False, 0),)
# Rows, K, rows of the weight, and whether they are of gate and up: products of Llama-3.1-8B.
SHAPES = (
    (1, 4096, 6144, False),
    (1, 4096, 4096, False),
    (1, 4096, 28672, False),
    (1, 4096, 28672, True),
    (1, 14336, 4096, False),
    (1, 4096, 128256, False),
    (16, 4096, 28672, False),
    (16, 14336, 4096, False),
)


def make_inputs(rows: int, width: int, columns: int, seed: int) -> Inputs:
    """x and weight, normally distributed."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)
    shape = {"device": harness.DEVICE, "generator": random, "dtype": torch.bfloat16}
    weight = torch.randn(columns, width, **shape).mul_(width**-0.5)
    return {"x": torch.randn(rows, width, **shape), "weight": weight}


def expected(i: Inputs, gated: bool) -> Expected:
    """y in float64 and its bound: of torch's too, on a CPU, which rounds a product, silu and y."""
    wants, bounds = [], []
    for part in i["weight"].split(4096):  # a whole one is too large in float64
        x, weight = i["x"].double(), part.double()
        size = tolerance.accumulation(x.shape[-1]) * (x.abs() @ weight.abs().T)
        wants.append(x @ weight.T)
        bounds.append(size)
    want, bound = torch.cat(wants, -1), torch.cat(bounds, -1)
    rounding = 2 * tolerance.unit(i["x"].dtype)
    bound = bound + rounding * want.abs()
    if gated:
        (gate, up), (gate_bound, up_bound) = want.chunk(2, -1), bound.chunk(2, -1)
        silu = torch.nn.functional.silu(gate)
        silu_bound = 1.1 * gate_bound + (rounding + 2**-20) * silu.abs()
        want = silu * up
        bound = silu_bound * (up.abs() + up_bound) + silu.abs() * up_bound + rounding * want.abs()
    return [(want, bound + 1e-30)]


def ours(i: Inputs, gated: bool) -> Call:
    """`linear`."""
    import thunderkittens

    activation = "swiglu" if gated else None
    return lambda: (thunderkittens.linear(i["x"], i["weight"], activation=activation),)


def formula(x: torch.Tensor, weight: torch.Tensor, gated: bool) -> torch.Tensor:
    """What torch computes, and torch.compile is given."""
    y = torch.nn.functional.linear(x, weight)
    if not gated:
        return y
    gate, up = y.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def torch_formula(i: Inputs, gated: bool) -> Call:
    """PyTorch's kernels, one after the other."""
    return lambda: (formula(i["x"], i["weight"], gated),)


def compiled_formula(i: Inputs, gated: bool) -> Call:
    """The same formula, compiled."""
    run = peers.compiled(formula)
    return lambda: (run(i["x"], i["weight"], gated),)


def cases(quick: bool = False) -> Iterator[Case]:
    """`quick` takes the first shape."""
    contenders = {OURS: ours, "torch": torch_formula, "torch.compile": compiled_formula}
    for rows, width, columns, gated in SHAPES[:1] if quick else SHAPES:
        moved = 2 * width * columns
        yield Case(
            op="linear",
            shape=f"{rows} x {width} x {columns}{' swiglu' if gated else ''}",
            dtype="bf16",
            work=moved,
            unit="TB/s",
            inputs=partial(make_inputs, rows, width, columns),
            expected=partial(expected, gated=gated),
            contenders={who: partial(call, gated=gated) for who, call in contenders.items()},
            resident=moved,
            in_graph=True,
        )


def host_calls(gradient: bool) -> HostCalls:
    """For bench_host: op -> contender -> call. Gradients are torch's own."""
    import thunderkittens

    if gradient:
        return {}
    x, weight = harness.host_tensors(2, (64, 1024), gradient)
    x = x[:1]
    return {
        "linear": {
            OURS: lambda: thunderkittens.linear(x, weight),
            "torch": lambda: torch.nn.functional.linear(x, weight),
        }
    }
