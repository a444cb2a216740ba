"""attention_decode: softmax and two products in float32, weights rounded; cache_append: copies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import thunderkittens
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import BF16, DTYPES, FP16, FP32, Draw
from thunderkittens.testing import tolerance

OPS = ("attention_decode", "cache_append")
FP8 = torch.float8_e4m3fn
# Scores of these leave the range of a softmax, in which one rounding decides.
LEFT_OUT = ("edge", "huge", "tiny", "denormal")


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    width = draw.choice((64, 128, 256, 64, 128, 8 * draw.size(32), draw.size(260)))
    key_heads, group = draw.size(8), draw.size(16)
    tokens = draw.choice((1, 1, draw.integer(1, 16), draw.integer(1, 20)))
    most = max(1, draw.elements() // (width * key_heads))
    batch = draw.size(max(1, min(70, most // 16)))
    capacity = draw.size(max(1, most // batch))
    page = draw.choice((0, 16, 24, 64, draw.integer(1, 70)))
    columns = -(-capacity // page) if page else 1
    rows = columns * page if page else capacity
    seqlens = draw.integers((batch,), 0, rows)
    if draw.chance(0.2):
        seqlens = draw.integers((batch,), -(2**31), 2**31 - 1)
    leading = (batch, rows)
    drawn = {"seqlens": seqlens if draw.chance(0.3) else seqlens.int()}
    if page:
        count = batch * columns + draw.choice((0, 3))
        table = draw.uniform((count,)).argsort()[: batch * columns].view(batch, columns)
        drawn["page_table"] = table if draw.chance(0.3) else table.int()
        leading = (count, page)
    regime = draw.regime(without=LEFT_OUT)
    for name in ("k_cache", "v_cache"):
        drawn[name] = draw.values((*leading, key_heads, width), dtype, regime)
    shared = {"page": page, "lengths": seqlens[:8].tolist(), "regime": regime}
    if op == "cache_append":
        return append_case(draw, drawn, tokens, shared)
    drawn["q"] = draw.values((batch, tokens, key_heads * group, width), dtype, regime)
    if dtype in (BF16, FP16) and draw.chance(0.3):
        for name in ("k_cache", "v_cache"):
            drawn[name] = drawn[name].clamp(-448, 448).to(FP8)
        for name in ("k_scale", "v_scale"):
            if draw.chance(0.7):
                drawn[name] = draw.uniform((key_heads,)).float() + 0.1
    options: dict[str, object] = {}
    if draw.chance(0.3):
        options["window"] = (draw.integer(0, rows), draw.choice((None, 0, 5)))
    if draw.chance(0.3):
        options["softcap"] = draw.choice((1.0, 20.0, 300.0))
    if draw.chance(0.2):
        options["scale"] = draw.choice((0.01, 0.2))
    if draw.chance(0.3):
        drawn["sinks"] = draw.values((key_heads * group,), draw.choice((dtype, FP32)), "normal")
    if dtype == torch.float64 and "sinks" in drawn:
        drawn["sinks"] = drawn["sinks"].double()
    inputs = {name: draw.place(t, rows=name.endswith("cache")) for name, t in drawn.items()}

    def call(tensors: Tensors) -> Tensors:
        return {"o": thunderkittens.attention_decode(**tensors, **options)}

    def judge(results: Tensors) -> dict[str, Judged]:
        given = {name: p.values for name, p in inputs.items()}
        in_halves = given["k_cache"].dtype == FP8 or (draw.kernels and dtype == FP16)
        return {"o": attended(given, options, in_halves, equal_terms(regime))}

    title = describe(
        dtype=dtype_name(dtype),
        q=list(drawn["q"].shape),
        cache=list(drawn["k_cache"].shape),
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        **shared,
        **options,
    )
    return Case(title, inputs, call, judge, (), {})


def gathered(given: Tensors, name: str) -> Tensor:
    """A cache as [B, S, Hk, D], in float64, times its scale."""
    cache = given[f"{name}_cache"].double()
    if f"{name}_scale" in given:
        cache = cache * given[f"{name}_scale"].double().unsqueeze(-1)
    if "page_table" not in given:
        return cache
    return cache[given["page_table"].long()].flatten(1, 2)


def equal_terms(regime: str) -> tuple[bool, bool]:
    """Whether terms of a score, q · k, are equal numbers; and those of o, weight · v."""
    return regime.startswith("constant"), regime in ("constant", "one-hot")


def attended(
    given: Tensors, options: dict[str, object], in_halves: bool, equal: tuple[bool, bool]
) -> Judged:
    """The output in float64, and how far one in float32 may be from it.

    `in_halves`: weights are rounded to float16. Of a score's equal terms all roundings may have one
    sign (tests/fuzz/arithmetic.py): then it may be off by D · eps / 2 of its size, and weights by e
    to the power of twice that. Of equal terms of o, as many as a row has keys, as well: products of
    matrices add all of them in a row, and whoever adds up the weights may.
    """
    q = given["q"].double()
    k, v = (gathered(given, name) for name in "kv")
    batch, tokens, heads, width = q.shape
    rows, group = k.shape[1], heads // k.shape[2]
    k, v = (t.repeat_interleave(group, 2) for t in (k, v))
    scale = float(options.get("scale", width**-0.5))  # type: ignore[arg-type]
    left = options["window"][0] if "window" in options else rows  # type: ignore[index]
    own = given["seqlens"].long().clamp(0, rows)[:, None] - tokens
    own = (own + torch.arange(tokens, device=q.device))[:, None, :, None]  # [B, 1, Sq, 1]
    keys = torch.arange(rows, device=q.device)
    seen = (keys <= own) & (keys >= own - left)
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * scale
    size = (torch.einsum("bihd,bjhd->bhij", q.abs(), k.abs()) * scale * seen).amax()
    if given["k_cache"].dtype == FP8 and given["q"].dtype == BF16:
        # Elements of q are rounded to 2^-25 of the largest of their row, as if a score were larger
        # by D / 16 products of the largest: a bound counts 2^-21 of it.
        size = size + width / 16 * q.abs().amax() * k.abs().amax() * scale
    cap = float(options.get("softcap", 0.0))  # type: ignore[arg-type]
    if cap:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~seen, -torch.inf)
    if "sinks" in given:
        sinks = given["sinks"].double()[:, None, None].expand(batch, -1, tokens, 1)
        scores = torch.cat([scores, sinks], -1)
    weights = scores.softmax(-1).nan_to_num(0)[..., :rows]  # NaN: of a row without keys
    o, spread = (torch.einsum("bhij,bjhd->bihd", weights, t) for t in (v, v.abs()))
    dtype = given["q"].dtype
    bound = tolerance.attention(o, spread, dtype, rows, float(size))
    # Of the largest weight: float16 has steps of 2^-24, and float32 no number below 2^-126.
    least = 2.0**-25 if in_halves else 2.0**-126
    bound = bound + rows * least * v.abs().amax()
    eps, (of_scores, of_values) = torch.finfo(torch.promote_types(dtype, FP32)).eps, equal
    if of_scores:
        bound = bound + math.expm1(width * eps * float(size)) * spread
    if of_values:
        bound = bound + 2 * (eps / 2) * seen.sum(-1).transpose(1, 2).unsqueeze(-1) * spread
    return Judged(o, bound)


def append_case(draw: Draw, drawn: Tensors, tokens: int, shared: dict[str, object]) -> Case:
    """One of cache_append."""
    batch, (key_heads, width) = drawn["seqlens"].shape[0], drawn["k_cache"].shape[2:]
    dtype = drawn["k_cache"].dtype
    for name in ("k", "v"):
        drawn[name] = draw.values((batch, tokens, key_heads, width), dtype, "normal")
    if draw.chance(0.6):
        pairs = draw.choice((width // 2, draw.integer(0, width // 2)))
        angle = draw.uniform((draw.size(300), pairs)) * 6.3
        table = FP32 if dtype in (FP16, BF16) and draw.chance(0.4) else dtype
        drawn |= {"cos": angle.cos().to(table), "sin": angle.sin().to(table)}
    inputs = {name: draw.place(t, rows=name.endswith("cache")) for name, t in drawn.items()}

    def call(tensors: Tensors) -> Tensors:
        thunderkittens.cache_append(**tensors)
        return {}

    def judge(results: Tensors) -> dict[str, Judged]:
        return appended({name: p.values for name, p in inputs.items()})

    title = describe(
        dtype=dtype_name(dtype),
        k=list(drawn["k"].shape),
        cache=list(drawn["k_cache"].shape),
        tables=list(drawn["cos"].shape) if "cos" in drawn else None,
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        **shared,
    )
    return Case(title, inputs, call, judge, (), {}, ("k_cache", "v_cache"))


def appended(given: Tensors) -> dict[str, Judged]:
    """Both caches after the call."""
    want = {name: given[name].double().clone() for name in ("k_cache", "v_cache")}
    bound = {name: torch.zeros_like(t) for name, t in want.items()}
    tokens, page = given["k"].shape[1], want["k_cache"].shape[1]
    table = given.get("page_table")
    for b, length in enumerate(given["seqlens"].tolist()):
        for i in range(tokens):
            at = length - tokens + i
            if not 0 <= at < (page if table is None else page * table.shape[1]):
                continue
            place = (b if table is None else int(table[b, at // page]), at % page)
            want["v_cache"][place] = given["v"][b, i].double()
            want["k_cache"][place] = given["k"][b, i].double()
            if "cos" not in given:
                continue
            row = min(at, given["cos"].shape[0] - 1)
            cos, sin = (given[name][row : row + 1].double() for name in ("cos", "sin"))
            turned, off = tolerance.rotary(given["k"][b : b + 1, i : i + 1], cos, sin)
            pairs = 2 * cos.shape[-1]
            want["k_cache"][place][:, :pairs] = turned[0, 0, :, :pairs]
            bound["k_cache"][place][:, :pairs] = off[0, 0, :, :pairs]
    return {name: Judged(want[name], bound[name]) for name in want}
