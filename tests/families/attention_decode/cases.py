"""The problems on which attention_decode is judged, on every backend: one list for all tests."""

import dataclasses

import torch
from torch import Tensor

import thunderkittens
from thunderkittens.testing import assert_close, tolerance

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
FP8 = torch.float8_e4m3fn
SHORT = {FP32: "fp32", FP16: "fp16", BF16: "bf16", FP64: "fp64", FP8: "fp8"}

LENGTHS = (0, 1, 15, 16, 17, 63, 64, 65)
LAYOUTS = ("heads_first", "fused", "with_gaps")


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of attention_decode.

    Attributes:
        lengths: Of the sequences; also below the number of tokens, negative, beyond the cache.
        tokens: Sq.
        heads: Hq.
        key_heads: Hk.
        head_dim: D.
        capacity: S, or at least M · page; 0 for the longest sequence.
        page: Rows of a page; 0: no pages.
        table: Columns of the page table at least, rubbish behind those of the capacity.
        dtype: Of all but the sinks and caches of fp8.
        cache: Their dtype, None for that of q.
        scaled: Whether there are scales of a cache of fp8.
        window: As given to the op.
        softcap: As given to the op.
        sinks: Of which dtype, or None.
        scale: As given to the op.
        layout: How the caches lie in memory, "contiguous" or one of LAYOUTS.
        query_layout: How q does: "contiguous", or "fused" beside k and v, or "stepped".
        out: How `out` lies, "contiguous", "fused" or "stepped"; "": not given.
        index: The dtype of seqlens and page_table.
    """

    lengths: tuple[int, ...] = LENGTHS
    tokens: int = 1
    heads: int = 4
    key_heads: int = 1
    head_dim: int = 64
    capacity: int = 0
    page: int = 0
    table: int = 0
    dtype: torch.dtype = BF16
    cache: torch.dtype | None = None
    scaled: bool = True
    window: tuple[int | None, int | None] | None = None
    softcap: float = 0.0
    sinks: torch.dtype | None = None
    scale: float | None = None
    layout: str = "contiguous"
    query_layout: str = "contiguous"
    out: str = ""
    index: torch.dtype = torch.int32

    @property
    def rows(self) -> int:
        """Keys that a sequence has room for, in whole pages."""
        rows = self.capacity or max(max(self.lengths, default=0), 1)
        return -(-rows // self.page) * self.page if self.page else rows

    def __str__(self) -> str:
        fields = ((f.name, getattr(self, f.name), f.default) for f in dataclasses.fields(self))
        shown = [f"{n}={SHORT.get(v, v)}" for n, v, default in fields if v != default]
        return ",".join(shown).replace(" ", "").replace("torch.", "") or "default"


def shapes() -> list[Case]:
    """Tokens, groups of heads, widths and dtypes."""
    groups = [(3, 3), (4, 1), (7, 1), (16, 2), (16, 1)]
    return [
        *(Case(tokens=t, head_dim=d) for t in (1, 2, 5, 16) for d in (64, 128)),
        *(Case(heads=q, key_heads=k, head_dim=128, dtype=FP16) for q, k in groups),
        *(Case((65, 3, 40), 5, q, k, dtype=FP16) for q, k in groups),
        Case((1000,), 1, 8, 2, 128),
        Case((1000, 0, 33), 3, 14, 2, 64, dtype=FP16),
        Case((70,) * 40, 1, 2, 2),  # more sequences than lanes
        Case((0,) * 33 + (40,) + (0,) * 35, 2, 2, 1),
        Case((0, 0), 2),
        Case((33,), 1, 1, 1, capacity=500),
        Case((2500,), 1, 2, 1),  # more parts than are loaded at once
    ]


def pages() -> list[Case]:
    """Pages of all kinds, in any order, behind tables with rubbish in what is not needed."""
    some = [(16, 1), (24, 2), (64, 1), (256, 5), (17, 16)]
    return [
        *(Case(tokens=t, page=p, capacity=300) for p, t in some),
        Case((200, 5, 64), 1, 8, 2, 128, page=16, dtype=FP16, window=(40, None)),
        Case((200, 130), 2, 4, 2, page=24, index=torch.int64, layout="heads_first"),
        Case((90, 1), 1, 4, 2, page=64, layout="fused", capacity=256),
    ]


def options() -> list[Case]:
    """Windows, caps, sinks, scales, strides and where the output goes."""
    return [
        *(
            Case((100, 0, 7, 64), t, window=w)
            for t in (1, 5)
            for w in ((0, 0), (31, None), (33, 4))
        ),
        Case((100, 3), 2, window=(2**40, None)),
        *(Case((100, 2, 0), 3, 8, 2, softcap=c, dtype=FP16) for c in (0.5, 30.0, 1000.0)),
        *(Case((100, 2, 0), 3, 8, 2, 128, sinks=s) for s in (BF16, FP32)),
        Case((1000, 0), 1, 4, 1, sinks=FP32, softcap=20.0, window=(900, None), scale=0.3),
        *(Case((100, 40), 2, 6, 2, layout=x) for x in LAYOUTS),
        *(Case((100, 40), 2, 6, 2, query_layout=x) for x in ("fused", "stepped")),
        *(Case((100, 40), 2, 6, 2, out=x) for x in ("contiguous", "fused", "stepped")),
        Case((100, 40), index=torch.int64),
        Case((-5, 1000, 2**31 - 1, -(2**31)), 2, capacity=50),
        Case((5, 2**40, -(2**40)), 2, capacity=40, index=torch.int64),
        Case((2, 1, 5), 7),
    ]


def padded() -> list[Case]:
    """Heads with fewer columns than a form of the kernel."""
    return [
        *(Case((65, 0, 17, 100), 2, 4, 2, head_dim=d) for d in (8, 16, 72, 80, 104, 112, 120)),
        Case((1000, 33), 3, 8, 2, 96, dtype=FP16, sinks=FP32, softcap=30.0),
        Case((200, 5, 64), 1, 8, 2, 96, page=16, window=(40, None)),
        Case((2500,), 1, 2, 1, 96),
        Case((2500,), 1, 2, 1, 80),  # parts of 20 lanes
        Case((1000, 0, 33), 2, 16, 2, 112, dtype=FP16),
        Case((200, 5, 64), 1, 8, 2, 88, page=64, window=(40, None)),
        *(Case((100, 40), 2, 6, 2, 40, layout=x) for x in LAYOUTS),
        *(Case((100, 40), 2, 6, 2, 96, out=x) for x in ("fused", "stepped")),
        *(Case((100, 33), 2, 6, 2, d, cache=FP8) for d in (16, 80, 96)),
        Case((2500,), 1, 2, 1, 80, cache=FP8),
        Case((200, 5, 64), 1, 8, 2, 112, page=24, cache=FP8, dtype=FP16),
    ]


def paired() -> list[Case]:
    """Key heads that warps take by pairs, as the page table has room for so many keys."""
    return [
        *(Case((65, 0, 17, 100), 2, 4, 2, d, page=64, table=2048) for d in (72, 80, 104, 112, 120)),
        Case((1000, 0, 33), 3, 14, 2, 112, page=16, table=11000, dtype=FP16, sinks=FP32),
        Case((200, 5), 1, 8, 2, 80, page=24, table=11000, window=(40, None), softcap=30.0),
        Case((2500,), 1, 2, 2, 80, page=64, table=8192),  # parts in groups
        Case((70,) * 40, 1, 4, 4, 80, page=64, table=128),
        Case((100, 40), 2, 6, 2, 112, page=64, table=4096, layout="fused"),
    ]


def wide() -> list[Case]:
    """Heads of more than 128 columns, of which two warps have a slice each."""
    return [
        *(Case(head_dim=d, tokens=t) for d, t in ((136, 1), (192, 5), (200, 16), (256, 2))),
        *(Case((65, 3, 40), 5, q, k, 256, dtype=FP16) for q, k in ((3, 3), (7, 1), (16, 2))),
        Case((1000, 0, 33), 3, 14, 2, 256, dtype=FP16, sinks=FP32, softcap=30.0),
        Case((70,) * 40, 1, 2, 2, 160),  # teams of two warps
        Case((2500,), 1, 2, 1, 256),  # parts in groups
        Case((1000,), 1, 8, 2, 192),
        *(Case((200, 5, 64), 1, 8, 2, 256, page=p, window=(40, None)) for p in (16, 24, 64)),
        *(Case((100, 40), 2, 6, 2, 240, layout=x) for x in LAYOUTS),
        *(Case((100, 40), 2, 6, 2, 176, out=x) for x in ("fused", "stepped")),
        *(Case((100, 33), 2, 6, 2, d, cache=FP8) for d in (144, 192, 208, 256)),
        Case((2500,), 1, 2, 1, 160, cache=FP8),
        Case((1000, 0, 33), 3, 14, 2, 256, cache=FP8, dtype=FP16, page=24, softcap=20.0),
    ]


def narrow_caches() -> list[Case]:
    """Caches of float8_e4m3fn."""
    return [
        *(Case(cache=FP8, head_dim=d, dtype=t) for d in (64, 128) for t in (BF16, FP16)),
        Case(cache=FP8, scaled=False),
        Case((1000, 0, 33), 3, 14, 2, 128, cache=FP8, dtype=FP16, sinks=FP32),
        Case((200, 5, 64), 1, 8, 2, 128, page=16, cache=FP8, window=(40, None)),
        Case((100, 90, 1), 1, 8, 8, page=64, capacity=256, cache=FP8, softcap=20.0),
        *(Case((100, 40), 2, 6, 2, layout=x, cache=FP8) for x in LAYOUTS),
        Case((100, 40), 2, 6, 2, out="stepped", cache=FP8),
    ]


EXAMPLE = Case((100, 37), 1, 8, 2, 128)  # of `make sim`
# What tests/tools/budgets.py measures.
BUDGETS = {
    "attention_decode": Case((256, 100), 1, 4, 1, 128),
    "attention_decode, pages": Case((256, 100), 1, 4, 1, 128, page=16),
    "attention_decode, 80 columns": Case((256, 100), 1, 4, 1, 80),
    "attention_decode, 256 columns": Case((256,), 1, 4, 1, 256),
}
SMALL = "--tokens 2 --lengths 40,3"  # options of `make sim`, for its tests


def lay_out(values: Tensor, layout: str) -> Tensor:
    """The same values [.., .., H, D] with other strides."""
    first, second, heads, width = values.shape
    if layout == "contiguous":
        return values
    if layout == "heads_first":  # [.., H, .., D]
        room = values.new_zeros(first, heads, second, width).transpose(1, 2)
    elif layout == "fused":  # beside others
        room = values.new_zeros(first, second, heads + 3, width)[:, :, 1 : heads + 1]
    elif layout == "with_gaps":
        gap = 16 // values.element_size()
        room = values.new_zeros(first + 1, 2 * second, heads, width + gap)[1:, ::2, :, :width]
    else:
        room = values.new_zeros(first, second, heads, 2 * width)[..., ::2]
    return room.copy_(values)


def make(case: Case, device: str = "cpu") -> tuple[Tensor | None, ...]:
    """q, k_cache, v_cache, seqlens, page_table, sinks, k_scale and v_scale.

    NaN in all that no query may read.
    """
    batch, rows = len(case.lengths), case.rows

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=FP32, device=device).to(case.dtype)

    q = lay_out(normal(batch, case.tokens, case.heads, case.head_dim), case.query_layout)
    sequences = [normal(batch, rows, case.key_heads, case.head_dim) for _ in "kv"]
    seen = needed(case).to(device)
    for t in sequences:
        t[~seen] = float("nan")
    seqlens = torch.tensor(case.lengths, dtype=case.index, device=device)
    table = None
    if case.page:
        columns = rows // case.page
        count = batch * columns + 3  # some are nobody's
        places = torch.randperm(count, device=device)[: batch * columns].view(batch, columns)
        paged = []
        for t in sequences:
            pool = t.new_full((count, case.page, *t.shape[2:]), float("nan"))
            pool[places.flatten()] = t.view(-1, case.page, *t.shape[2:])
            paged.append(pool)
        sequences = paged
        unneeded = ~seen.view(batch, columns, case.page).any(-1)
        rubbish = torch.tensor([-1, count, 2**31 - 1, -(2**31)], device=device)
        rubbish = rubbish[torch.arange(batch * columns, device=device) % 4].view(batch, columns)
        table = torch.where(unneeded, rubbish, places).to(case.index)
        more = max(0, case.table - columns)
        table = torch.cat([table, table.new_full((batch, more), count)], 1)
    kind = case.cache or case.dtype
    k, v = (lay_out(t.to(kind), case.layout) for t in sequences)
    scales: list[Tensor | None] = [None, None]
    if case.cache is not None and case.scaled:
        scales = [0.5 + torch.rand(case.key_heads, device=device) for _ in "kv"]
    sinks = None
    if case.sinks is not None:
        sinks = torch.randn(case.heads, device=device).to(case.sinks)
    return q, k, v, seqlens, table, sinks, *scales


def needed(case: Case) -> Tensor:
    """[B, S]: the keys that some query sees."""
    left = case.rows if case.window is None else (case.window[0] or 0)
    keys = torch.arange(case.rows)
    ends = torch.tensor(case.lengths).clamp(0, case.rows).view(-1, 1)
    return (keys < ends) & (keys >= ends - case.tokens - left)


def run_case(case: Case, inputs) -> tuple[Tensor]:
    """The output, by the backend in force."""
    q, k, v, seqlens, table, sinks, k_scale, v_scale = inputs
    out = None
    if case.out:
        out = lay_out(torch.full(q.shape, float("nan"), dtype=q.dtype, device=q.device), case.out)
    o = thunderkittens.attention_decode(
        *(q, k, v),
        seqlens=seqlens,
        page_table=table,
        scale=case.scale,
        window=case.window,
        softcap=case.softcap,
        sinks=sinks,
        k_scale=k_scale,
        v_scale=v_scale,
        out=out,
    )
    assert out is None or o is out
    return (o,)


def check_case(case: Case, inputs, results) -> None:
    """Asserts the output against float64."""
    (o,) = results
    want, spread, score = reference(case, inputs)
    assert o.dtype == case.dtype
    assert case.out or o.is_contiguous()
    longest = int(needed(case).sum(1).max()) if case.lengths else 0
    bound = tolerance.attention(want, spread, case.dtype, longest, score)
    assert_close(o, want, bound, "o")


def reference(case: Case, inputs) -> tuple[Tensor, Tensor, float]:
    """The output in float64, softmax @ |v| and the largest |q| @ |k| · scale, as defined.

    Where q of bfloat16 meets keys of fp8 its elements are rounded to 2^-25 of its row's largest, so
    a score is off by D · 2^-25 of the largest product: as bounds count, 2^-21 of a score, as if it
    were larger by D / 16 such products.
    """
    q, k, v, seqlens, table, sinks, *scales = inputs
    k, v = (
        t.double() if s is None else t.double() * s.double().unsqueeze(-1)
        for t, s in zip((k, v), scales, strict=True)
    )
    scale = case.head_dim**-0.5 if case.scale is None else case.scale
    group, largest = case.heads // case.key_heads, 0.0
    o, spread = torch.zeros(2, *q.shape, dtype=FP64, device=q.device)
    for b in range(q.shape[0]):
        length = min(max(int(seqlens[b]), 0), case.rows)
        for i in range(case.tokens):
            own = length - case.tokens + i
            left = own if case.window is None else (case.window[0] or 0)
            keys = list(range(max(own - left, 0), own + 1))
            if not keys:
                continue
            rows = (torch.full((len(keys),), b), torch.tensor(keys))
            if table is not None:
                pages = [int(table[b, j // case.page]) for j in keys]
                rows = (torch.tensor(pages), torch.tensor([j % case.page for j in keys]))
            each_k, each_v = (t[rows].repeat_interleave(group, 1).transpose(0, 1) for t in (k, v))
            query = q[b, i].double().unsqueeze(-1)  # [Hq, D, 1]
            scores = (each_k @ query).squeeze(-1) * scale
            size = float((each_k.abs() @ query.abs()).max())
            if case.cache is not None and case.dtype == BF16:
                size += case.head_dim / 16 * float(each_k.abs().max() * query.abs().max())
            largest = max(largest, size * abs(scale))
            if case.softcap:
                scores = case.softcap * torch.tanh(scores / case.softcap)
            if sinks is not None:
                scores = torch.cat([scores, sinks.double().unsqueeze(-1)], -1)
            weights = scores.softmax(-1)[:, : len(keys)].unsqueeze(1)
            o[b, i] = (weights @ each_v).squeeze(1)
            spread[b, i] = (weights @ each_v.abs()).squeeze(1)
    return o, spread, largest
