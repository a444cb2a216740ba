"""attention_qkvpacked: what attention's cases have, of q, k and v that lie in one tensor."""

from __future__ import annotations

import dataclasses
import math

import torch

import thunderkittens
from tests.families.attention import fuzz
from tests.families.attention.explained import BY_TORCH
from tests.families.attention.fuzz_shape import Shape, exist
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import BF16, FP16, FP32, FP64, Draw, split
from tests.fuzz.placement import Placed

OPS = ("attention_qkvpacked",)


def drawn_shape(draw: Draw, packed: bool) -> Shape:
    """Of as many scores as attention's, but alike in rows and keys, heads, and widths."""
    s = fuzz.drawn_shape(draw)
    rows = max(1, math.isqrt(s.rows * s.keys))
    s = dataclasses.replace(s, rows=rows, keys=rows, heads=s.key_heads, value_width=s.width)
    if not packed:
        return s
    lengths = split(draw, rows)
    before, after = draw.choice(((0, 0), (0, 0), (2, 0), (0, 5), (1, 3)))
    total = rows + before + after
    sizes = {"batch": 1, "rows": total, "keys": total, "before": before}
    return dataclasses.replace(s, **sizes, row_lengths=lengths, key_lengths=lengths)


def drawn_qkv(draw: Draw, s: Shape, values: Tensors) -> Placed:
    """[B, S, 3, H, D], or packed; what lies where no token, or no key, is may be NaN."""
    qkv = torch.stack([values[n] for n in "qkv"], -3)
    stray = (s.packed or bool(s.key_ranges)) and draw.chance(0.5)
    if stray and s.packed:
        qkv[:, : s.before] = math.nan
        qkv[:, s.before + sum(s.row_lengths) :] = math.nan
    elif stray:
        qkv[:, :, 1:].masked_fill_(~exist(s, qkv.device)[..., None, None, None], math.nan)
    return draw.place(qkv.squeeze(0) if s.packed else qkv, expand=not stray)


def is_ours(draw: Draw, given: Tensors, options: dict) -> bool:
    """Whether a kernel of ours computes the gradients, too."""
    if not draw.kernels:
        return False
    given = given | {"qkv": given["qkv"].detach().requires_grad_()}
    with thunderkittens.backend("simulator" if draw.device == "cpu" else "auto"):
        found = thunderkittens.explain("attention_qkvpacked", **given, **options)
    return found.backend != "torch" and not any(BY_TORCH in note for note in found.notes)


def place_incoming(draw: Draw, s: Shape, options: dict, dtype: torch.dtype) -> dict[str, Placed]:
    """The gradients of o and, sometimes, of lse."""
    batch = () if s.packed else (s.batch,)
    shape = (*batch, s.rows, s.heads, s.width)
    incoming = {"o": fuzz.place_gradient(draw, shape, dtype)}
    if options["return_lse"] and draw.chance(0.6):
        wide = FP64 if dtype == FP64 else FP32
        incoming["lse"] = fuzz.place_gradient(draw, (*batch, s.heads, s.rows), wide)
    return incoming


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(fuzz.DTYPES)
    s = drawn_shape(draw, draw.chance(0.35))
    values, scale, exact, regime = fuzz.drawn_values(draw, s, dtype)
    options = fuzz.drawn_options(draw, s, scale)
    s, bounds = fuzz.drawn_bounds(draw, s)
    inputs = {"qkv": drawn_qkv(draw, s, values)}
    if draw.chance(0.2):
        kind = draw.choice((dtype, FP32)) if dtype in (FP16, BF16) else dtype
        inputs["sinks"] = draw.place(draw.values((s.heads,), kind, "normal"), expand=True)
    if s.packed:
        starts = torch.tensor((0, *s.row_lengths), device=draw.device).cumsum(0) + s.before
        inputs["cu_seqlens"] = draw.place(starts.int() if draw.chance(0.6) else starts)
        options["max_seqlen"] = max(s.row_lengths) + draw.choice((0, 0, 9))
    for name, numbers in bounds.items():
        given = torch.tensor(numbers, device=draw.device)
        inputs[name] = draw.place(given.int() if draw.chance(0.6) else given)
    often = 0.2 if exact else 0.8  # as attention's
    leaves = tuple(n for n in ("qkv", "sinks") if n in inputs and draw.chance(often))
    incoming = place_incoming(draw, s, options, dtype) if leaves else {}

    def call(tensors: Tensors) -> Tensors:
        results = thunderkittens.attention_qkvpacked(**tensors, **options)
        return dict(
            zip(("o", "lse"), results if options["return_lse"] else (results,), strict=False)
        )

    def judge(results: Tensors) -> dict[str, Judged]:
        given = {n: p.values for n, p in inputs.items()}
        given |= dict(zip("qkv", given["qkv"].unbind(-3), strict=True))
        qkv = inputs["qkv"]
        problem = dataclasses.replace(
            fuzz.stated(s, given, options, dtype),
            generic=fuzz.scores_are_generic(regime, qkv, qkv),
            generic_values=fuzz.values_are_generic(regime, qkv),
            exact=exact,
            by_torch=by_torch,
            fused=ours or (fuzz.is_plain(options, inputs, incoming) and "cu_seqlens" not in inputs),
            integer_dq=ours,
            sink_parts=len(s.row_lengths) + 2 if by_torch and s.packed else 1,
        )
        judged = fuzz.judged_forward(problem, s, options)
        if leaves:
            judged |= fuzz.judged_backward(problem, s, {n: p.values for n, p in incoming.items()})
            parts = [judged[f"d{n}"] for n in "qkv"]
            want, bound = ([getattr(p, field) for p in parts] for field in ("want", "bound"))
            judged["dqkv"] = Judged(torch.stack(want, -3), torch.stack(bound, -3))
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
    own = fuzz.is_served(s, options.get("scale"))
    by_torch = not (draw.kernels and own and dtype in (BF16, FP16))
    ours = is_ours(draw, fuzz.views(inputs), options)
    nondeterministic = ("dqkv",) if draw.device == "cuda" and not ours else ()
    return Case(
        title, inputs, call, judge, leaves, incoming, nondeterministic=nondeterministic, own=own
    )
