"""attention_decode, one query token, bf16: memory-bound, so figures are minimum bytes / time.

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
    """Sizes of one problem, in bf16."""

    batch: int
    context: int
    heads: int = 32
    key_heads: int = 8
    head_dim: int = 128
    paged: bool = False

    def __str__(self) -> str:
        pages = f" pages of {PAGE}" if self.paged else ""
        heads = f"H{self.heads}:{self.key_heads}"
        return f"B{self.batch} context {self.context} {heads} D{self.head_dim}{pages}"

    def cache_bytes(self) -> int:
        """Of keys and values."""
        return 4 * self.batch * self.context * self.key_heads * self.head_dim


SHAPES = (
    Shape(16, 8192),
    Shape(64, 4096),
    Shape(1, 32768),
    Shape(1, 4096),
    Shape(16, 8192, paged=True),
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
    inputs |= {name: normal(*sizes, *heads) for name in ("k", "v")}
    inputs["seqlens"] = torch.full(
        (shape.batch,), shape.context, device=harness.DEVICE, dtype=torch.int32
    )
    return inputs


def sequences_of(i: Inputs, name: str) -> torch.Tensor:
    """A cache as [B, S, Hk, D]."""
    cache = i[name]
    if "page_table" not in i:
        return cache
    return cache[i["page_table"].long()].flatten(1, 2)


def expected(i: Inputs) -> Expected:
    """o in float64."""
    q = i["q"].double()
    k, v = (sequences_of(i, name) for name in ("k", "v"))
    want, bound = torch.empty_like(q), torch.empty_like(q)
    group = q.shape[2] // k.shape[2]
    for b in range(q.shape[0]):
        keys, values = (t[b].double().repeat_interleave(group, 1) for t in (k, v))
        scores = torch.einsum("hd,shd->hs", q[b, 0], keys) * q.shape[-1] ** -0.5
        weights = scores.softmax(-1)
        want[b, 0] = torch.einsum("hs,shd->hd", weights, values)
        spread = torch.einsum("hs,shd->hd", weights, values.abs())
        size = torch.einsum("hd,shd->hs", q[b, 0].abs(), keys.abs()) * q.shape[-1] ** -0.5
        bound[b, 0] = tolerance.attention(
            want[b, 0], spread, i["q"].dtype, k.shape[1], float(size.max())
        )
    return [(want, bound)]


def ours(i: Inputs) -> Call:
    """`attention_decode`."""
    import thunderkittens

    return lambda: (
        thunderkittens.attention_decode(
            i["q"], i["k"], i["v"], seqlens=i["seqlens"], page_table=i.get("page_table")
        ),
    )


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
