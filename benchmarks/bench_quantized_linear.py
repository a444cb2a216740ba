"""quantized_linear of few rows: memory-bound, so every figure is the weight's bytes / time.

Minimum bytes: read the weight, of 8 or 4 bits a number, and its scales. torch multiplies a weight
of bf16 with the same values: 2 or nearly 4 times the bytes. torch.compile is given what makes that
weight, and the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from benchmarks import bench_linear, harness, peers
from benchmarks.harness import OURS, Call, Case, Expected, HostCalls, Inputs, Panel

PANELS = (Panel("quantized linear, few rows", False, 0),)
FORMATS = {"e4m3": torch.float8_e4m3fn, "int4": "int4"}
GROUP = 128  # columns that share a scale of int4
# Rows, K, rows of the weight: products of Llama-3.1-8B.
SHAPES = (
    (1, 4096, 6144),
    (1, 4096, 4096),
    (1, 4096, 28672),
    (1, 14336, 4096),
    (1, 4096, 128256),
    (16, 4096, 4096),
    (16, 4096, 28672),
)


def make_inputs(form: str, rows: int, width: int, columns: int, seed: int) -> Inputs:
    """x, normally distributed, a weight that was, and what it became in bf16."""
    import thunderkittens

    given = bench_linear.make_inputs(rows, width, columns, seed)
    group = min(GROUP, width)
    # Piece by piece, in float32.
    parts = [
        thunderkittens.quantize_weight(part, FORMATS[form], group_size=group)
        for part in given.pop("weight").split(8192)
    ]
    weight, scale = (torch.cat([part[i] for part in parts]) for i in range(2))
    dense = [thunderkittens.dequantize_weight(*part).bfloat16() for part in parts]
    return {**given, "weight": weight, "scale": scale, "dense": torch.cat(dense)}


def expected(i: Inputs) -> Expected:
    """y in float64 and its bound: the weight may be rounded to bf16, or not."""
    ((want, bound),) = bench_linear.expected({"x": i["x"], "weight": i["dense"]}, gated=False)
    sizes = [i["x"].double().abs() @ part.double().abs().T for part in i["dense"].split(4096)]
    return [(want, bound + torch.finfo(torch.bfloat16).eps / 2 * torch.cat(sizes, -1))]


def ours(i: Inputs) -> Call:
    """`quantized_linear`."""
    import thunderkittens

    return lambda: (thunderkittens.quantized_linear(i["x"], i["weight"], i["scale"]),)


def torch_dense(i: Inputs) -> Call:
    """PyTorch's product with the weight in bf16."""
    return lambda: (torch.nn.functional.linear(i["x"], i["dense"]),)


def compiled_formula(i: Inputs) -> Call:
    """The weight made anew and multiplied, compiled."""
    import thunderkittens

    def formula(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        dense = thunderkittens.dequantize_weight(weight, scale)
        return torch.nn.functional.linear(x, dense.to(x.dtype))

    run = peers.compiled(formula)
    return lambda: (run(i["x"], i["weight"], i["scale"]),)


def cases(quick: bool = False) -> Iterator[Case]:
    """`quick` takes the first shape."""
    for form in FORMATS:
        for rows, width, columns in SHAPES[:1] if quick else SHAPES:
            moved = width * columns + 4 * columns
            if form == "int4":
                moved = width * columns // 2 + 2 * columns * -(-width // GROUP)
            yield Case(
                op="quantized_linear",
                shape=f"{rows} x {width} x {columns}",
                dtype=form,
                work=moved,
                unit="TB/s",
                inputs=partial(make_inputs, form, rows, width, columns),
                expected=expected,
                contenders={OURS: ours, "torch": torch_dense, "torch.compile": compiled_formula},
                resident=moved + 2 * width * columns,
                in_graph=True,
            )


def host_calls(gradient: bool) -> HostCalls:
    """For bench_host: op -> contender -> call. Gradients are torch's own."""
    import thunderkittens

    if gradient:
        return {}
    x, weight = harness.host_tensors(2, (64, 1024), gradient)
    x = x[:1]
    made = thunderkittens.quantize_weight(weight, torch.float8_e4m3fn)
    return {
        "quantized_linear": {
            OURS: lambda: thunderkittens.quantized_linear(x, *made),
            "torch": lambda: torch.nn.functional.linear(x, weight),
        }
    }
