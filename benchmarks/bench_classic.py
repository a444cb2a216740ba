"""Kernels in the spelling of the literature of 2024, compiled against <kittens/classic.cuh>.

"thunderkittens" is here a kernel of tests/kittens/classic, as it stands; beside it are the
package's op, the ladder's kernel (demos/custom_kernel), and torch's. The kernels come from a
library of their own (classic_library.py). FLOPs: 4 · heads · seq² · head_dim of attention, half of
it when causal, and 2 · m · n · k of a product. Minimum bytes: read what is given, write the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import classic_library, harness, peers_attention
from benchmarks.harness import OURS, Call, Case, Expected, Inputs, Panel
from thunderkittens.testing import tolerance

NOTE = """\
"thunderkittens" is here a kernel in [the classic spelling](../docs/classic.md), compiled against
`<kittens/classic.cuh>`; "ladder" is that of
[demos/custom_kernel](../demos/custom_kernel/README.md)."""
PANELS = (Panel("kernels in the classic spelling", False, 0),)
FIRST = (64, 1024)  # heads and keys of the literature's first kernel, of 4 and 8 warps
WARPS = (4, 8)
H100 = tuple((width, causal, 4096) for width in (64, 128) for causal in (False, True))
TOKENS_BY_WIDTH = 16384 * 2048  # heads · seq · head_dim
PRODUCTS = ((8192, 8192, 8192), (4096, 4096, 4096))
NORM = (65536, 1024)
ROTARY = (64, 8192)  # heads, positions
SUMS = (16384, 8192)
library: Path | None = None  # `--library`; None: where classic_library builds it
BF16 = 2.0**-8  # the largest relative error of rounding to bfloat16
SUM = 2.0**-23  # … and of an addition in float, on tensor cores too, which may cut off


def random(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """bf16, normally distributed."""
    return torch.randn(shape, device=harness.DEVICE, generator=generator).bfloat16()


def tensors(shapes: dict[str, tuple[int, ...]], seed: int) -> Inputs:
    """Tensors by name."""
    generator = torch.Generator(harness.DEVICE).manual_seed(seed)
    return {name: random(shape, generator) for name, shape in shapes.items()}


def classic(method: str, i: Inputs, **options: Any) -> Call:
    """A kernel of the library, of the inputs in their order."""
    return getattr(classic_library.load(library), method)(*i.values(), **options)


# ---- attention: q, k, v and o [heads, seq, head_dim] --------------------------------------------


def attention_expected(i: Inputs, causal: bool) -> Expected:
    """o in float64, one head at a time, and its bound.

    Weights and o are rounded to bf16 once each, by at most 2⁻⁸ of Σ weight · |v|; a twentieth of
    that is left for float.
    """
    o = torch.empty(i["q"].shape, dtype=torch.float64, device=harness.DEVICE)
    bound = torch.empty_like(o)
    hidden = torch.ones(o.shape[1], o.shape[1], dtype=torch.bool, device=harness.DEVICE).triu(1)
    for head in range(len(o)):
        q, k, v = (i[name][head].double() for name in "qkv")
        scores = q @ k.t() * o.shape[2] ** -0.5
        weights = (scores.masked_fill(hidden, -torch.inf) if causal else scores).softmax(-1)
        o[head] = weights @ v
        bound[head] = 1.05 * 2 * BF16 * (weights @ v.abs())
    return [(o, bound)]


def batched(call: Callable[[Inputs], Call], i: Inputs) -> Call:
    """A call on [1, seq, heads, head_dim], its result as [heads, seq, head_dim]."""
    run = call({name: x.transpose(0, 1)[None] for name, x in i.items()})
    return lambda: (run()[0][0].transpose(0, 1),)


def attention_op(i: Inputs, causal: bool) -> Call:
    """`attention`."""
    import thunderkittens

    return lambda: (thunderkittens.attention(i["q"], i["k"], i["v"], causal=causal),)


def attention_case(op: str, width: int, causal: bool, seq: int, heads: int, ours: Any) -> Case:
    """One problem of attention; `ours`: inputs -> call."""
    sdpa = partial(peers_attention.sdpa, causal=causal)
    return Case(
        op=op,
        shape=f"{heads} heads, head_dim {width}, {'causal' if causal else 'full'}, seq {seq}",
        dtype="bf16",
        work=4 * heads * seq**2 * width // (2 if causal else 1),
        unit="TFLOP/s",
        inputs=partial(tensors, dict.fromkeys("qkv", (heads, seq, width))),
        expected=partial(attention_expected, causal=causal),
        contenders={
            OURS: ours,
            "the op": partial(batched, partial(attention_op, causal=causal)),
            "ladder": partial(classic, "ladder_attention", causal=causal),
            "cuDNN": partial(batched, partial(sdpa, backend="CUDNN_ATTENTION")),
            "FlashAttention-2": partial(batched, partial(sdpa, backend="FLASH_ATTENTION")),
        },
        resident=8 * heads * seq * width,
    )


# ---- a product: a [m, k], b [k, n] --------------------------------------------------------------


def product_expected(i: Inputs) -> Expected:
    """One rounding to bf16, and k additions in float; some rows at a time."""
    b = i["b"].double()
    wants, sizes = [], []
    for rows in i["a"].split(1024):
        wants.append(rows.double() @ b)
        sizes.append(rows.double().abs() @ b.abs())
    want, size = torch.cat(wants), torch.cat(sizes)
    return [(want, 1.01 * BF16 * want.abs() + len(b) * SUM * size)]


def product_case(m: int, n: int, k: int) -> Case:
    """c = a b."""
    return Case(
        op="classic_gemm",
        shape=f"{m} x {n} x {k}",
        dtype="bf16",
        work=2 * m * n * k,
        unit="TFLOP/s",
        inputs=partial(tensors, {"a": (m, k), "b": (k, n)}),
        expected=product_expected,
        contenders={
            OURS: partial(classic, "h100_gemm"),
            "ladder": partial(classic, "ladder_gemm"),
            "torch": lambda i: lambda: (i["a"] @ i["b"],),
        },
        resident=2 * (m * k + k * n + m * n),
    )


# ---- memory-bound -------------------------------------------------------------------------------


def norm_case(rows: int, width: int) -> Case:
    """Layer norm, of the width that its kernel is for."""

    def expected(i: Inputs) -> Expected:
        x, weight, bias = (i[name].double() for name in ("x", "weight", "bias"))
        want = functional.layer_norm(x, (width,), weight, bias)
        normal = functional.layer_norm(x, (width,))
        scale = (1 + normal.abs()) * weight.abs()
        # One rounding to bf16; mean and variance are sums in float, of width numbers at most.
        bound = BF16 * want.abs() + 2**-16 * scale + 2**-22
        return [(want, bound)]

    def op(i: Inputs) -> Call:
        import thunderkittens

        return lambda: (thunderkittens.layer_norm(i["x"], i["weight"], i["bias"]),)

    def by_torch(i: Inputs) -> Call:
        return lambda: (functional.layer_norm(i["x"], (width,), i["weight"], i["bias"]),)

    moved = 4 * rows * width + 4 * width
    return Case(
        op="classic_layer_norm",
        shape=f"{rows} x {width}",
        dtype="bf16",
        work=moved,
        unit="TB/s",
        inputs=partial(tensors, {"x": (rows, width), "weight": (width,), "bias": (width,)}),
        expected=expected,
        contenders={
            OURS: partial(classic, "layer_norm"),
            "the op": op,
            "torch": by_torch,
        },
        resident=moved,
    )


def rotary_inputs(heads: int, positions: int, seed: int) -> Inputs:
    """x, and the tables of cos and sin."""
    i = tensors({"x": (heads, positions, 128)}, seed)
    rates = 10000.0 ** -(torch.arange(64, device=harness.DEVICE) / 64)
    angles = torch.arange(positions, device=harness.DEVICE)[:, None] * rates
    return i | {"cos": angles.cos().bfloat16(), "sin": angles.sin().bfloat16()}


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x's halves, rotated."""
    x1, x2 = x.chunk(2, -1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), -1)


def rotary_case(heads: int, positions: int) -> Case:
    """Rotary position embedding."""

    def expected(i: Inputs) -> Expected:
        want = rotate(*(x.double() for x in i.values()))
        x, cos, sin = (x.double().abs() for x in i.values())
        size = x * torch.cat((cos, cos), -1) + x.roll(64, -1) * torch.cat((sin, sin), -1)
        # One rounding to bf16; in float two products and a sum.
        return [(want, BF16 * want.abs() + 3 * 2**-24 * size)]

    def op(i: Inputs) -> Call:
        import thunderkittens

        x = i["x"].transpose(0, 1)[None]
        return lambda: (thunderkittens.rotary(x, None, i["cos"], i["sin"])[0][0].transpose(0, 1),)

    moved = 4 * heads * positions * 128 + 4 * positions * 64
    return Case(
        op="classic_rotary",
        shape=f"{heads} x {positions} x 128",
        dtype="bf16",
        work=moved,
        unit="TB/s",
        inputs=partial(rotary_inputs, heads, positions),
        expected=expected,
        contenders={
            OURS: partial(classic, "rotary"),
            "the op": op,
            "torch": lambda i: lambda: (rotate(*i.values()),),
        },
        resident=moved,
    )


def sum_case(rows: int, columns: int) -> Case:
    """Sums of rows, as float."""

    def expected(i: Inputs) -> Expected:
        x = i["x"].double()
        return [(x.sum(-1), tolerance.accumulation(columns) * x.abs().sum(-1))]

    moved = 2 * rows * columns + 4 * rows
    return Case(
        op="classic_row_sums",
        shape=f"{rows} x {columns}",
        dtype="bf16",
        work=moved,
        unit="TB/s",
        inputs=partial(tensors, {"x": (rows, columns)}),
        expected=expected,
        contenders={
            OURS: partial(classic, "row_sums"),
            "torch": lambda i: lambda: (i["x"].sum(-1, dtype=torch.float32),),
        },
        resident=moved,
    )


def cases(quick: bool = False) -> Iterator[Case]:
    """Every kernel; `quick` takes one problem of each.

    Raises:
        MissingPeer: There is no library, and no nvcc to build it with.
    """
    classic_library.load(library)
    for warps in WARPS:
        op = f"classic_attention_{warps}_warps"
        kernel = partial(classic, "attention", warps=warps)
        yield attention_case(op, 64, False, FIRST[1], FIRST[0], kernel)
    for width, causal, seq in H100[-1:] if quick else H100:
        kernel = partial(classic, "h100_attention", causal=causal)
        heads = max(1, TOKENS_BY_WIDTH // (width * seq))
        yield attention_case("classic_h100_attention", width, causal, seq, heads, kernel)
    for sizes in PRODUCTS[:1] if quick else PRODUCTS:
        yield product_case(*sizes)
    yield norm_case(*NORM)
    yield rotary_case(*ROTARY)
    yield sum_case(*SUMS)
