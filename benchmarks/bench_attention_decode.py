"""attention_decode, one query token: memory-bound, so figures are minimum bytes / time.

Minimum bytes: read the keys and values of all sequences, which fill their caches. (q and o are a
thousandth of them.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks import harness, peers_attention_decode
from benchmarks.harness import OURS, Call, Case, Expected, HostCalls, Inputs, Panel
from thunderkittens.testing import tolerance

PANELS = (Panel("attention_decode", False, 0),)
PAGE = 64


@dataclass(frozen=True)
class Shape:
    """Sizes of one problem, in bf16; the caches of e4m3, with scales, if fp8."""

    batch: int
    context: int
    heads: int = 32
    key_heads: int = 8
    head_dim: int = 128
    paged: bool = False
    fp8: bool = False

    def __str__(self) -> str:
        pages = f" pages of {PAGE}" if self.paged else ""
        fp8 = " fp8" if self.fp8 else ""
        heads = f"H{self.heads}:{self.key_heads}"
        return f"B{self.batch} context {self.context} {heads} D{self.head_dim}{pages}{fp8}"

    def cache_bytes(self) -> int:
        """Of keys and values."""
        elements = 2 * self.batch * self.context * self.key_heads * self.head_dim
        return elements * (1 if self.fp8 else 2)


SHAPES = (
    Shape(16, 8192),
    Shape(64, 4096),
    Shape(1, 32768),
    Shape(1, 4096),
    Shape(16, 8192, 16, 8, 256),
    Shape(16, 8192, paged=True),
    Shape(16, 8192, fp8=True),
    Shape(64, 4096, fp8=True),
    Shape(1, 32768, fp8=True),
    Shape(16, 8192, paged=True, fp8=True),
)


def make_inputs(shape: Shape, seed: int) -> Inputs:
    """q, the caches and lengths, normally distributed; pages in any order."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)

    def normal(*sizes: int) -> torch.Tensor:
        values = torch.randn(sizes, device=harness.DEVICE, generator=random)
        return values.to(torch.bfloat16)

    heads = (shape.key_heads, shape.head_dim)
    inputs = {"q": normal(shape.batch, 1, shape.heads, shape.head_dim)}
    sizes = (shape.batch, shape.context)
    if shape.paged:
        columns = shape.context // PAGE
        sizes = (shape.batch * columns, PAGE)
        pages = torch.randperm(sizes[0], device=harness.DEVICE, generator=random)
        inputs["page_table"] = pages.view(shape.batch, columns).int()
    for name in ("k", "v"):
        inputs[name] = normal(*sizes, *heads)
        if shape.fp8:
            inputs[name] = inputs[name].to(torch.float8_e4m3fn)
            scales = torch.rand(shape.key_heads, device=harness.DEVICE, generator=random)
            inputs[f"{name}_scale"] = 0.5 + scales
    inputs["seqlens"] = torch.full(
        (shape.batch,), shape.context, device=harness.DEVICE, dtype=torch.int32
    )
    return inputs


def sequence_of(i: Inputs, name: str, b: int) -> torch.Tensor:
    """What a cache holds of a sequence, [S, Hk, D] in float64."""
    cache = i[name]
    one = cache[b] if "page_table" not in i else cache[i["page_table"][b].long()].flatten(0, 1)
    scales = i.get(f"{name}_scale")
    return one.double() if scales is None else one.double() * scales.double()[:, None]


def expected(i: Inputs) -> Expected:
    """o in float64."""
    q = i["q"].double()
    want, bound = torch.empty_like(q), torch.empty_like(q)
    group = q.shape[2] // i["k"].shape[2]
    for b in range(q.shape[0]):
        keys, values = (sequence_of(i, name, b).repeat_interleave(group, 1) for name in "kv")
        scores = torch.einsum("hd,shd->hs", q[b, 0], keys) * q.shape[-1] ** -0.5
        weights = scores.softmax(-1)
        want[b, 0] = torch.einsum("hs,shd->hd", weights, values)
        spread = torch.einsum("hs,shd->hd", weights, values.abs())
        size = torch.einsum("hd,shd->hs", q[b, 0].abs(), keys.abs()) * q.shape[-1] ** -0.5
        largest = float(size.max())
        if "k_scale" in i:  # q is rounded to 2^-25 of its row's largest, of which D / 16 bounds are
            product = float(keys.abs().max() * q[b].abs().max())
            largest += q.shape[-1] / 16 * product * q.shape[-1] ** -0.5
        bound[b, 0] = tolerance.attention(want[b, 0], spread, i["q"].dtype, keys.shape[0], largest)
    return [(want, bound)]


def ours(i: Inputs) -> Call:
    """`attention_decode`."""
    import thunderkittens

    options = {name: i.get(name) for name in ("seqlens", "page_table", "k_scale", "v_scale")}
    return lambda: (thunderkittens.attention_decode(i["q"], i["k"], i["v"], **options),)


CONTENDERS = {
    OURS: ours,
    "torch": peers_attention_decode.sdpa,
    "torch cuDNN": partial(peers_attention_decode.sdpa, backend="CUDNN_ATTENTION"),
    "torch flash": partial(peers_attention_decode.sdpa, backend="FLASH_ATTENTION"),
    "flash-attn": peers_attention_decode.flash_attention,
}


def cases(quick: bool = False) -> Iterator[Case]:
    """`quick` takes the first shape."""
    for shape in SHAPES[:1] if quick else SHAPES:
        yield Case(
            op="attention_decode",
            shape=str(shape),
            dtype="bf16",
            work=shape.cache_bytes(),
            unit="TB/s",
            inputs=partial(make_inputs, shape),
            expected=expected,
            contenders=CONTENDERS,
            resident=shape.cache_bytes(),
            in_graph=True,
        )


def host_calls(gradient: bool) -> HostCalls:
    """For bench_host: op -> contender -> call. There is no backward."""
    import thunderkittens

    if gradient:
        return {}
    q, k, v = harness.host_tensors(3, (1, 1, 4, 64), gradient)
    caches = [torch.zeros(1, 64, 4, 64, device=q.device, dtype=q.dtype) for _ in "kv"]
    seqlens = torch.full((1,), 64, device=q.device, dtype=torch.int32)
    first = torch.zeros(1, device=q.device, dtype=torch.int64)

    def write() -> None:
        for cache, new in zip(caches, (k, v), strict=True):
            cache.index_put_((first, first), new[:, 0])

    return {
        "attention_decode": {
            OURS: lambda: thunderkittens.attention_decode(q, *caches, seqlens=seqlens),
            "torch": peers_attention_decode.sdpa({"q": q, "k": caches[0], "v": caches[1]}),
        },
        "cache_append": {
            OURS: lambda: thunderkittens.cache_append(k, v, *caches, seqlens),
            "torch": write,
        },
    }
