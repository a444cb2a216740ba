"""All products of a step of decoding, one behind the other, bf16: the bytes of the weights / time.

Of each layer qkv, o, gate · up (with SwiGLU) and down, and the vocabulary's; random weights. Of
attention, norms and what else is in a step there is nothing. On a GPU it is one CUDA graph.
Minimum bytes: read the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks import bench_linear, harness, peers
from benchmarks.harness import OURS, Call, Case, Expected, Inputs, Panel
from thunderkittens.testing.timing import free_cached_memory

PANELS = (Panel("linear, all of a step", False, 1),)

Product = Callable[[Tensor, Tensor, bool], Tensor]  # x, weight, whether it is of gate and up


class Model(NamedTuple):
    """Sizes of a model."""

    layers: int
    width: int
    qkv: int
    hidden: int
    vocabulary: int

    def weights(self) -> dict[str, tuple[int, int]]:
        """The shape of each."""
        shapes = {"vocabulary": (self.vocabulary, self.width)}
        for layer in range(self.layers):
            shapes |= {
                f"qkv {layer}": (self.qkv, self.width),
                f"o {layer}": (self.width, self.width),
                f"gate_up {layer}": (2 * self.hidden, self.width),
                f"down {layer}": (self.width, self.hidden),
            }
        return shapes


MODELS = {
    "Llama-3.1-8B": Model(32, 4096, 6144, 14336, 128256),
    "Qwen3-8B": Model(36, 4096, 6144, 12288, 151936),
}
ROWS = (1, 4, 8, 16)
CONSTANT = "ours, weight_is_constant"


def make_inputs(model: Model, rows: int, seed: int) -> Inputs:
    """The weights by name, and what they are multiplied with: x, or hidden."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)
    shape = {"device": harness.DEVICE, "generator": random, "dtype": torch.bfloat16}
    weights = {
        name: torch.randn(size, **shape).mul_(size[1] ** -0.5)
        for name, size in model.weights().items()
    }
    x, hidden = (torch.randn(rows, width, **shape) for width in (model.width, model.hidden))
    return weights | {"x": x, "hidden": hidden}


def factor(name: str) -> str:
    """What a weight is multiplied with."""
    return "hidden" if name.startswith("down") else "x"


def shown(i: Inputs) -> list[str]:
    """The weights whose products are checked: the vocabulary's and those of one layer."""
    return [name for name in i if name == "vocabulary" or name.endswith(" 0")]


def expected(i: Inputs) -> Expected:
    """Those products in float64, and their bounds."""
    return [
        one
        for name in shown(i)
        for one in bench_linear.expected(
            {"x": i[factor(name)], "weight": i[name]}, gated=name.startswith("gate_up")
        )
    ]


def step(i: Inputs, product: Product) -> Call:
    """All products, as one graph where there is a GPU."""
    names = [name for name in i if name not in ("x", "hidden")]
    kept = shown(i)

    def run() -> tuple[Tensor, ...]:
        results = {}
        for name in names:
            y = product(i[factor(name)], i[name], name.startswith("gate_up"))
            if name in kept:
                results[name] = y
        return tuple(results[name] for name in kept)

    if harness.DEVICE == "cpu":
        return run
    with torch.cuda.stream(torch.cuda.Stream()):
        run()
    free_cached_memory()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()

    def replay() -> tuple[Tensor, ...]:
        graph.replay()
        return results

    return replay


def ours(i: Inputs, constant: bool) -> Call:
    """`linear`; constant: its promise that no kernel writes the weights."""
    import thunderkittens

    def product(x: Tensor, weight: Tensor, gated: bool) -> Tensor:
        activation = "swiglu" if gated else None
        return thunderkittens.linear(x, weight, activation=activation, weight_is_constant=constant)

    return step(i, product)


def cases(quick: bool = False) -> Iterator[Case]:
    """`quick` takes one row of the first model."""
    contenders = {
        OURS: partial(ours, constant=False),
        CONSTANT: partial(ours, constant=True),
        "torch": partial(step, product=bench_linear.formula),
        "torch.compile": lambda i: step(i, peers.compiled(bench_linear.formula)),
    }
    for name, model in list(MODELS.items())[: 1 if quick else None]:
        moved = 2 * sum(rows * columns for rows, columns in model.weights().values())
        for rows in ROWS[: 1 if quick else None]:
            yield Case(
                op="linear_step",
                shape=f"{name}, {rows} {'row' if rows == 1 else 'rows'}",
                dtype="bf16",
                work=moved,
                unit="TB/s",
                inputs=partial(make_inputs, model, rows),
                expected=expected,
                contenders=contenders,
                resident=moved,
            )
