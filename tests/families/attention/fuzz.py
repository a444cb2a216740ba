"""attention: dense and packed calls, with everything that its arguments offer."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

import thunderkittens
from tests.families.attention.explained import is_differentiated_by_us
from tests.families.attention.fuzz_reference import Problem
from tests.families.attention.fuzz_shape import Shape, exist, visible
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import BF16, FP16, FP32, FP64, Draw, split
from tests.fuzz.placement import Placed

OPS = ("attention",)
DTYPES = {BF16: 6, FP16: 6, FP32: 1, FP64: 1}
OF_SCORES = ("huge", "edge", "offset")  # regimes whose scores say nothing
GRADIENTS = ("normal", "normal", "constant", "sparse", "one-hot")


def drawn_shape(draw: Draw, packed: bool = False) -> Shape:
    """Its scores are few: a reference holds them all."""
    sizes = {1 << 10: 5, 1 << 12: 4, 1 << 14: 0.5}
    if draw.large:
        sizes = {1 << 14: 4, 1 << 18: 5, 1 << 21: 1}
    most = draw.weighted(sizes)
    width = draw.choice((8, 16, 32, 64, 64, 64, 80, 96, 128, 128, 192, 256))
    value_width = width if draw.chance(0.7) else draw.choice((8, 16, 64, 72, 128, 256))
    if draw.chance(0.05):  # which the kernel does not take
        width, value_width = draw.choice(((1, 8), (7, 7), (64, 12), (20, 64), (264, 264)))
    if draw.chance(0.01):
        width, value_width = draw.choice(((0, 8), (8, 0)))
    key_heads = draw.size(4)
    heads = key_heads * draw.choice((1, 1, 1, 2, 4, 3))
    batch = 1 if packed else draw.size(3)
    cells = max(4, most // (batch * heads))
    rows = draw.size(min(cells, 2048 if draw.large else max(1, 256 // heads)))
    keys = draw.size(max(1, min(4096, cells // rows)))
    if draw.chance(0.4):
        rows = keys = max(1, math.isqrt(cells))
        rows = keys = draw.size(rows)
    if draw.chance(0.01):
        keys = 0
    shape = Shape(batch, rows, keys, heads, key_heads, width, value_width)
    if not packed:
        return shape
    row_lengths = split(draw, rows)
    key_lengths = row_lengths
    if draw.chance(0.5):
        key_lengths = tuple(draw.integer(0, 2 * n + 4) for n in row_lengths)
    before, after = draw.choice(((0, 0), (0, 0), (2, 0), (0, 5), (1, 3)))
    return dataclasses.replace(
        shape,
        rows=rows + before + after,
        keys=sum(key_lengths) + before + after,
        row_lengths=row_lengths,
        key_lengths=key_lengths,
        before=before,
    )


def drawn_values(draw: Draw, s: Shape, dtype: torch.dtype) -> tuple[Tensors, float, bool, str]:
    """q, k, v as [B, S, H, D], a scale, whether the scores are exact, and what they are like."""
    sizes = {
        "q": (s.batch, s.rows, s.heads, s.width),
        "k": (s.batch, s.keys, s.key_heads, s.width),
        "v": (s.batch, s.keys, s.key_heads, s.value_width),
    }
    empty = 0 in (s.width, s.value_width, s.keys)
    of_values = draw.regime(without=("huge", "edge", *(("one-hot",) if empty else ())))
    if draw.chance(0.1) and not empty:  # large, and exact in float32
        most = 14 if dtype == FP16 else 50
        values = {name: large(draw, sizes[name], dtype, most) for name in ("q", "k")}
        values["v"] = draw.values(sizes["v"], dtype, of_values)
        power = draw.integer(-8, 4)
        if dtype in (FP32, FP64) or not is_served(s, None):
            power -= power % 2  # torch may multiply both q and k by its square root
        return values, 2.0**power, True, f"large/{of_values}"
    regimes = [draw.regime(without=(*OF_SCORES, *(("one-hot",) if empty else ()))) for _ in "qk"]
    if draw.chance(0.5):
        regimes = ["normal", "normal"]
    values = {n: draw.values(sizes[n], dtype, r) for n, r in zip("qk", regimes, strict=True)}
    values["v"] = draw.values(sizes["v"], dtype, of_values)
    scale = max(s.width, 1) ** -0.5 * draw.choice((1.0, 1.0, 1.0, 0.3, 4.0))
    if draw.chance(0.01):
        scale = -scale
    return values, scale, False, "/".join((*regimes, of_values))


def large(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype, most: int) -> Tensor:
    """One element of a row is a small number times a power of two; all others are 0.

    The element stands at one place in all rows of q and k, so that each score is one product.
    """
    x = draw.integers((*shape[:-1], 1), -4, 4).double() * 2.0 ** draw.integer(0, most - 3)
    values = torch.zeros(shape, dtype=FP64, device=draw.device)
    values[..., :1] = x
    return values.to(dtype)


def drawn_options(draw: Draw, s: Shape, scale: float) -> dict:
    """The keyword arguments that are no tensors."""
    options: dict = {"scale": scale}
    if scale == max(s.width, 1) ** -0.5 and draw.chance(0.7):
        options = {}
    options["causal"] = draw.chance(0.4)
    if draw.chance(0.25):
        sides = (None, 0, 1, 7, 64, draw.integer(0, max(1, s.keys)))
        options["window"] = (draw.choice(sides), draw.choice(sides))
    if draw.chance(0.2):
        options["softcap"] = draw.choice((30.0, 50.0, 5.0, 0.5, 1e4, 1e6))
    options["return_lse"] = draw.chance(0.5)
    return options


def drawn_bounds(draw: Draw, s: Shape) -> tuple[Shape, dict[str, list[int]]]:
    """seqused_k and leftpad_k, some to be clamped; and the shape that knows of them."""
    bounds: dict[str, list[int]] = {}
    for name in ("seqused_k", "leftpad_k"):
        if not s.packed and draw.chance(0.2):
            some = (0, s.keys, s.keys + 7, -5, *(draw.integer(0, s.keys) for _ in range(4)))
            bounds[name] = [draw.choice(some) for _ in range(s.batch)]
    if not bounds:
        return s, bounds
    ends = [min(max(n, 0), s.keys) for n in bounds.get("seqused_k", [s.keys] * s.batch)]
    starts = bounds.get("leftpad_k", [0] * s.batch)
    firsts = [min(max(n, 0), end) for n, end in zip(starts, ends, strict=True)]
    return dataclasses.replace(s, key_ranges=tuple(zip(firsts, ends, strict=True))), bounds


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    s = drawn_shape(draw, draw.chance(0.35))
    values, scale, exact, regime = drawn_values(draw, s, dtype)
    options = drawn_options(draw, s, scale)
    s, bounds = drawn_bounds(draw, s)

    inputs = {}
    for name, value in values.items():
        stray = (s.packed or (bool(bounds) and name != "q")) and draw.chance(0.5)
        if stray and bounds:  # keys that do not exist, likewise
            value = value.masked_fill(~exist(s, value.device)[..., None, None], math.nan)
        if s.packed:
            value = value.squeeze(0)
            lengths = s.row_lengths if name == "q" else s.key_lengths
        if stray and s.packed:  # tokens of no sequence may hold anything
            value = value.clone()
            value[: s.before] = math.nan
            value[s.before + sum(lengths) :] = math.nan
        inputs[name] = draw.place(value, expand=not stray)
    if draw.chance(0.2):
        kind = draw.choice((dtype, FP32)) if dtype in (FP16, BF16) else dtype
        inputs["sinks"] = draw.place(draw.values((s.heads,), kind, "normal"), expand=True)
    if s.packed:
        for name, lengths in (("q", s.row_lengths), ("k", s.key_lengths)):
            starts = torch.tensor((0, *lengths), device=draw.device).cumsum(0) + s.before
            starts = starts.int() if draw.chance(0.6) else starts
            inputs[f"cu_seqlens_{name}"] = draw.place(starts)
            options[f"max_seqlen_{name}"] = max(lengths) + draw.choice((0, 0, 9))
    for name, numbers in bounds.items():
        given = torch.tensor(numbers, device=draw.device)
        inputs[name] = draw.place(given.int() if draw.chance(0.6) else given)
    # lse in float32 does not tell large scores apart: few of their gradients say anything.
    often = 0.2 if exact else 0.7
    leaves = tuple(n for n in ("q", "k", "v", "sinks") if n in inputs and draw.chance(often))
    incoming = {}
    if leaves:
        shape = (*inputs["q"].view.shape[:-1], s.value_width)
        incoming["o"] = place_gradient(draw, shape, dtype)
        if options["return_lse"] and draw.chance(0.6):
            wide = FP64 if dtype == FP64 else FP32
            sizes = (s.heads, s.rows) if s.packed else (s.batch, s.heads, s.rows)
            incoming["lse"] = place_gradient(draw, sizes, wide)

    def call(tensors: Tensors) -> Tensors:
        given = {n: t for n, t in tensors.items()}
        results = thunderkittens.attention(**given, **options)
        return (
            dict(zip(("o", "lse"), results, strict=True))
            if options["return_lse"]
            else {"o": results}
        )

    def judge(results: Tensors) -> dict[str, Judged]:
        given = {n: p.values for n, p in inputs.items()}
        problem = dataclasses.replace(
            stated(s, given, options, dtype),
            generic=scores_are_generic(regime, inputs["q"], inputs["k"]),
            generic_values=values_are_generic(regime, inputs["v"]),
            exact=exact,
            by_torch=by_torch,
            fused=ours or (is_plain(options, inputs, incoming) and (by_torch or alike)),
            integer_dq=ours,
            # On the CPU torch's sums are those of each sequence, and of what belongs to none.
            sink_parts=len(s.row_lengths) + 2 if by_torch and s.packed else 1,
        )
        judged = judged_forward(problem, s, options)
        if leaves:
            given = {n: p.values for n, p in incoming.items()}
            judged |= judged_backward(problem, s, given)
        return {name: judged[name] for name in results}

    title = describe(
        dtype=dtype_name(dtype),
        **{n: list(p.view.shape) for n, p in inputs.items()},
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        regime=regime,
        lengths=s.row_lengths[:8],
        bounds=bounds,
        leaves=",".join(leaves),
        incoming=",".join(incoming),
        **options,
    )
    own = is_served(s, options.get("scale"))
    served = own and dtype in (BF16, FP16)
    by_torch = not (draw.kernels and served)
    alike, ours = s.width == s.value_width, is_ours(draw, views(inputs), options)
    nondeterministic = ()
    if (
        draw.device == "cuda" and not ours
    ):  # FlashAttention adds dq up in any order, torch's others all three
        nondeterministic = ("dq",) if served else ("dq", "dk", "dv")
    return Case(
        title, inputs, call, judge, leaves, incoming, nondeterministic=nondeterministic, own=own
    )


def is_served(s: Shape, scale: float | None) -> bool:
    """Whether the kernel takes a call of 16 bits."""
    widths = all(0 < n <= 256 and n % 8 == 0 for n in (s.width, s.value_width))
    return widths and s.keys > 0 and (scale is None or scale > 0)


def views(inputs: dict[str, Placed]) -> Tensors:
    return {name: placed.view for name, placed in inputs.items()}


def is_ours(draw: Draw, given: Tensors, options: dict) -> bool:
    """Whether a kernel of ours computes the gradients of an attention, too."""
    if not draw.kernels:
        return False
    with thunderkittens.backend("simulator" if draw.device == "cpu" else "auto"):
        return is_differentiated_by_us(**given, **options)


def is_plain(options: dict, inputs: dict, incoming: dict) -> bool:
    """Whether torch's fused attention has all that the call asks for."""
    bounded = any(side is not None for side in options.get("window", ()))
    others = not inputs.keys().isdisjoint(("sinks", "cu_seqlens_q", "seqused_k", "leftpad_k"))
    others = others or "lse" in incoming
    return not (bounded or others or options.get("softcap"))


def scores_are_generic(regime: str, q: Placed, k: Placed) -> bool:
    """Whether the weights are unrelated numbers, whatever v holds, and so are their roundings."""
    regimes = regime.split("/")[:2]
    spread = "normal" in regimes and set(regimes) <= {"normal", "positive"}
    return spread and not any(0 in p.view.stride() for p in (q, k))


def values_are_generic(regime: str, v: Placed) -> bool:
    """Whether each row of o, Σ p · v, has unrelated numbers, which differ from row to row.

    Sums of numbers about 0 alone do: those of others are near their mean, and so near each other.
    """
    return regime.split("/")[-1] in ("normal", "small") and 0 not in v.view.stride()


def place_gradient(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype) -> Placed:
    """Of a result, which may be expanded, as y.sum().backward() makes it."""
    kind = draw.choice(GRADIENTS if shape and shape[-1] else GRADIENTS[:4])
    return draw.place(draw.values(shape, dtype, kind), expand=True)


# ---- The reference's form -----------------------------------------------------------------------


def stated(s: Shape, values: Tensors, options: dict, dtype: torch.dtype) -> Problem:
    """Tokens of no sequence, and keys that do not exist, count as zeros: nobody sees them."""
    group = s.heads // s.key_heads
    tensors = {n: (values[n].unsqueeze(0) if s.packed else values[n]).double() for n in "qkv"}
    q, k, v = (tensors[n].nan_to_num(0.0).transpose(1, 2) for n in "qkv")
    sinks = values.get("sinks")
    scale = options.get("scale")
    return Problem(
        q.reshape(s.batch, s.key_heads, group, s.rows, s.width),
        k.unsqueeze(2),
        v.unsqueeze(2),
        visible(s, options, q.device),
        max(s.width, 1) ** -0.5 if scale is None else scale,
        dtype,
        options.get("softcap", 0.0),
        None if sinks is None else sinks.double().view(s.key_heads, group),
        sink_dtype=dtype if sinks is None else sinks.dtype,
    )


def judged_forward(problem: Problem, s: Shape, options: dict) -> dict[str, Judged]:
    judged = {"o": like_queries(problem.output(), s)}
    if options.get("return_lse"):
        shape = (s.heads, s.rows) if s.packed else (s.batch, s.heads, s.rows)
        lse = problem.log_sum()
        judged["lse"] = Judged(lse.want.reshape(shape), lse.bound.reshape(shape))
    return judged


def judged_backward(problem: Problem, s: Shape, given: Tensors) -> dict[str, Judged]:
    group = s.heads // s.key_heads
    do = given["o"].double()
    do = (do.unsqueeze(0) if s.packed else do).transpose(1, 2)
    do = do.reshape(s.batch, s.key_heads, group, s.rows, s.value_width)
    dlse = given.get("lse")
    if dlse is not None:
        dlse = dlse.double().reshape(s.batch, s.key_heads, group, s.rows)
    found = problem.gradients(do, dlse)
    judged = {"dq": like_queries(found["q"], s)}
    for name in "kv":
        judged[f"d{name}"] = like_keys(found[name], s)
    if "sinks" in found:
        each = found["sinks"]
        judged["dsinks"] = Judged(each.want.flatten(), each.bound.flatten())
    return judged


def like_queries(judged: Judged, s: Shape) -> Judged:
    """[B, Hk, G, Sq, D] as [B, Sq, Hq, D], or packed."""

    def turned(t: Tensor) -> Tensor:
        t = t.flatten(1, 2).transpose(1, 2)
        return t.squeeze(0) if s.packed else t

    return Judged(turned(judged.want), turned(judged.bound))


def like_keys(judged: Judged, s: Shape) -> Judged:
    """[B, Hk, 1, Sk, D] as [B, Sk, Hk, D], or packed."""

    def turned(t: Tensor) -> Tensor:
        t = t.squeeze(2).transpose(1, 2)
        return t.squeeze(0) if s.packed else t

    return Judged(turned(judged.want), turned(judged.bound))
