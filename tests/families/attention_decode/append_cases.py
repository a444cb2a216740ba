"""The problems on which cache_append is judged, on every backend: one list for all tests."""

import dataclasses

import torch
from torch import Tensor

import thunderkittens
from tests.families.attention_decode.cases import BF16, FP8, FP16, FP32, FP64, SHORT, lay_out
from thunderkittens.testing import assert_close, memory, tolerance

LAYOUTS = ("heads_first", "fused", "with_gaps", "stepped")


@dataclasses.dataclass(frozen=True)
class AppendCase:
    """One call of cache_append.

    Attributes:
        lengths: Of the sequences, with the new tokens; also ones that the cache has no room for.
        tokens: N.
        key_heads: Hk.
        head_dim: D.
        capacity: S, or M · page.
        page: Rows of a page; 0: no pages.
        rotated: R; None: k is not turned.
        full: Whether the tables have D columns, two equal halves.
        table: The dtype of cos and sin, None for k's.
        dtype: Of k, v and the caches.
        cache: Of the caches, None for that of k and v.
        scaled: Whether there are scales of caches of fp8.
        layout: How k and v lie in memory, "contiguous" or one of LAYOUTS.
        cache_layout: How the caches do.
        index: The dtype of seqlens and page_table.
    """

    lengths: tuple[int, ...] = (1, 20, 40)
    tokens: int = 1
    key_heads: int = 2
    head_dim: int = 64
    capacity: int = 48
    page: int = 0
    rotated: int | None = 64
    full: bool = False
    table: torch.dtype | None = None
    dtype: torch.dtype = BF16
    cache: torch.dtype | None = None
    scaled: bool = True
    layout: str = "contiguous"
    cache_layout: str = "contiguous"
    index: torch.dtype = torch.int32

    def __str__(self) -> str:
        fields = ((f.name, getattr(self, f.name), f.default) for f in dataclasses.fields(self))
        shown = [f"{n}={SHORT.get(v, v)}" for n, v, default in fields if v != default]
        return ",".join(shown).replace(" ", "").replace("torch.", "") or "default"


def all_cases() -> list[AppendCase]:
    """Dtypes, widths, tables, pages, layouts, and positions that the cache does not have."""
    outside = (0, 2, 49, 51, 60, -3, 2**31 - 1, -(2**31))
    widths = [
        (64, 32),
        (128, 128),
        (96, 24),
        (80, 20),
        (6, 6),
        (7, 4),
        (1, 0),
        (64, None),
        (5, None),
    ]
    return [
        *(AppendCase(dtype=t, rotated=r) for t in (FP32, FP16, BF16) for r in (None, 64, 20)),
        *(AppendCase(head_dim=d, rotated=r, tokens=3) for d, r in widths),
        AppendCase(table=FP32),
        AppendCase(full=True),
        AppendCase(key_heads=40, tokens=2, head_dim=128, rotated=128, table=FP32),
        *(AppendCase(outside, 3, page=p, rotated=r) for p in (0, 16, 24) for r in (None, 64)),
        AppendCase((5, 2**40, -(2**40)), 2, index=torch.int64),
        AppendCase((5, 2**40, 30), 2, page=16, index=torch.int64),
        AppendCase((40,) * 70, 2, page=16),
        *(AppendCase(tokens=2, layout=x) for x in LAYOUTS),
        *(AppendCase(tokens=2, cache_layout=x) for x in LAYOUTS[:3]),
        *(AppendCase(tokens=2, cache_layout=x, page=16, dtype=FP32) for x in LAYOUTS[:3]),
        *(
            AppendCase(cache=FP8, dtype=t, rotated=r)
            for t in (FP32, FP16, BF16)
            for r in (None, 20)
        ),
        AppendCase(cache=FP8, scaled=False, rotated=None, layout="stepped"),
        AppendCase(outside, 3, page=24, cache=FP8, head_dim=7, rotated=4, cache_layout="with_gaps"),
        AppendCase((0, 0), 2),
        AppendCase((), 2, rotated=None),
    ]


def make(case: AppendCase, device: str = "cpu") -> tuple[Tensor | None, ...]:
    """k, v, k_cache, v_cache, seqlens, page_table, cos, sin, k_scale and v_scale."""
    batch = len(case.lengths)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device).to(case.dtype)

    sizes = (batch, case.tokens, case.key_heads, case.head_dim)
    k, v = (lay_out(normal(*sizes), case.layout) for _ in "kv")
    seqlens = torch.tensor(case.lengths, dtype=case.index, device=device)
    count, rows, table = batch, case.capacity, None
    if case.page:
        columns = case.capacity // case.page
        count, rows = batch * columns + 3, case.page
        table = torch.randperm(count, device=device)[: batch * columns].view(batch, columns)
        table[:1, :1] = -1  # a page that is none
        table[1:2, -1:] = count
        table = table.to(case.index)
    shape, kind = (count, rows, case.key_heads, case.head_dim), case.cache or case.dtype
    caches = [lay_out(normal(*shape).to(kind), case.cache_layout) for _ in "kv"]
    scales: list[Tensor | None] = [None, None]
    if case.cache is not None and case.scaled:  # some are too small for the largest values
        scales = [0.001 + 0.02 * torch.rand(case.key_heads, device=device) for _ in "kv"]
    if case.rotated is None:
        return k, v, *caches, seqlens, table, None, None, *scales
    angle = 6.3 * torch.rand(case.capacity - 4, case.rotated // 2, device=device)
    if case.full:
        angle = torch.cat([angle, angle], -1)
    kind = case.table or case.dtype
    cos, sin = angle.cos().to(kind), angle.sin().to(kind)
    return k, v, *caches, seqlens, table, cos, sin, *scales


def run_case(case: AppendCase, inputs) -> tuple[Tensor, Tensor]:
    """Both caches, which are those that were given."""
    *tensors, cos, sin, k_scale, v_scale = inputs
    options = {"cos": cos, "sin": sin, "k_scale": k_scale, "v_scale": v_scale}
    assert thunderkittens.cache_append(*tensors, **options) is None
    return tensors[2], tensors[3]


def check_case(case: AppendCase, inputs, results) -> None:
    """Asserts the caches after a call by those before it; what is not turned has the same bits."""
    k, v, k_cache, v_cache, seqlens, table, cos, sin, k_scale, v_scale = inputs
    want_k, want_v = k_cache.clone(), v_cache.clone()
    for b in range(len(case.lengths)):
        for i in range(case.tokens):
            position = int(seqlens[b]) - case.tokens + i
            if not 0 <= position < case.capacity:
                continue
            page, row = b, position
            if table is not None:
                page, row = int(table[b, position // case.page]), position % case.page
                if not 0 <= page < k_cache.shape[0]:
                    continue
            want_v[page, row] = cached(case, v[b, i], v_scale)
            new = cached(case, k[b, i], k_scale)
            if case.rotated:
                pairs, at = case.rotated // 2, min(position, cos.shape[0] - 1)
                c, s = cos[at, :pairs].double(), sin[at, :pairs].double()
                turned, bound = tolerance.rotary(k[b : b + 1, i : i + 1], c[None], s[None])
                got, want, off = results[0][page, row], turned[0, 0], bound[0, 0]
                if case.cache is not None:  # of 4 bits, of steps of 2^-9 at least, up to 448
                    scale = torch.ones(1, 1) if k_scale is None else k_scale.unsqueeze(-1)
                    scale = scale.to(want)
                    want = want.clamp(-448 * scale, 448 * scale)
                    off = off + 2**-4 * want.abs() + 2**-10 * scale
                    assert_close(got.double() * scale, want, off, f"k_cache[{page}, {row}]")
                else:
                    assert_close(got, want, off, f"k_cache[{page}, {row}]")
                new[:, : 2 * pairs] = got[:, : 2 * pairs]
            want_k[page, row] = new
    assert memory.bits_equal(results[0], want_k), "k_cache"
    assert memory.bits_equal(results[1], want_v), "v_cache"


def cached(case: AppendCase, values: Tensor, scale: Tensor | None) -> Tensor:
    """What a cache holds of keys or values, [Hk, D]: a copy."""
    if case.cache is None:
        return values.clone()
    if scale is not None:
        values = values.float() / scale.unsqueeze(-1)
    return values.float().clamp(-448, 448).to(case.cache)


def copied(inputs) -> list[Tensor | None]:
    """The inputs with caches of their own, which lie in memory as those given do."""
    given = list(inputs)
    for i in (2, 3):
        t = given[i]
        span = 1 + sum((s - 1) * d for s, d in zip(t.shape, t.stride(), strict=True))
        given[i] = t.new_zeros(span if t.numel() else 0).as_strided(t.shape, t.stride()).copy_(t)
    return given


DTYPES = (BF16, FP16, FP32, FP64)
