"""scaled_dot_product_attention: torch's signature, [..., H, S, D], causal from the top left."""

from __future__ import annotations

import torch
from torch import Tensor

import thunderkittens
from tests.families.attention.fuzz import (
    DTYPES,
    drawn_shape,
    drawn_values,
    is_ours,
    is_served,
    place_gradient,
    scores_are_generic,
    values_are_generic,
)
from tests.families.attention.fuzz_reference import Problem
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import BF16, FP16, Draw
from tests.fuzz.placement import Placed

OPS = ("scaled_dot_product_attention",)


def make(draw: Draw, op: str) -> Case:
    """Of a GPU's cases, only those our kernel takes: torch's own fail at layouts as drawn here.

    (torch 2.11 on an H200: `misaligned address`, `mha_graph.execute`, `no kernel found`; and NaN
    beside masks whose rows are not contiguous.)
    """
    dtype = draw.choice((BF16, FP16)) if draw.large else draw.weighted(DTYPES)
    s = drawn_shape(draw)
    while draw.large and not is_served(s, None):
        s = drawn_shape(draw)
    values, scale, exact, regime = drawn_values(draw, s, dtype)
    options: dict = {"scale": scale if exact or draw.chance(0.5) else None}
    if draw.large and options["scale"] is not None:
        options["scale"] = abs(options["scale"])
    masked = not draw.large and draw.chance(0.15)
    options["is_causal"] = not masked and draw.chance(0.5)
    group = s.heads // s.key_heads
    if group > 1:
        options["enable_gqa"] = True

    # [B, S, H, D] or [B, H, S, D] in memory; and calls without a batch.
    single = s.batch == 1 and draw.chance(0.3)
    inputs = {}
    for name, value in values.items():
        value = value.transpose(1, 2)
        inputs[name] = draw.place(value.squeeze(0) if single else value, expand=True)
    names = {"q": "query", "k": "key", "v": "value"}
    inputs = {names[name]: placed for name, placed in inputs.items()}
    if masked:
        seen = draw.uniform((s.rows, s.keys)) < 0.5
        seen[:, :1] = True  # torch's own kernels disagree on rows without a key
        inputs["attn_mask"] = draw.place(seen)
    leaves = tuple(n for n in names.values() if draw.chance(0.2 if exact else 0.7))
    incoming = {}
    if leaves:
        shape = (*inputs["query"].view.shape[:-1], s.value_width)
        incoming["o"] = place_gradient(draw, shape, dtype)

    def call(tensors: Tensors) -> Tensors:
        return {"o": thunderkittens.scaled_dot_product_attention(**tensors, **options)}

    def judge(results: Tensors) -> dict[str, Judged]:
        device = inputs["query"].view.device
        seen = torch.ones(s.rows, s.keys, dtype=torch.bool, device=device)
        seen = seen.tril() if options["is_causal"] else seen
        seen = inputs["attn_mask"].values if masked else seen

        def five(t: Tensor, heads: int, many: int) -> Tensor:
            t = t.double().reshape(s.batch, heads, *t.shape[-2:])
            return t.reshape(s.batch, s.key_heads, many, *t.shape[-2:])

        given = {n: p.values for n, p in inputs.items()}
        q = five(given["query"], s.heads, group)
        k, v = (five(given[n], s.key_heads, 1) for n in ("key", "value"))
        used = max(s.width, 1) ** -0.5 if options["scale"] is None else options["scale"]
        by_torch = not (draw.kernels and own and dtype in (BF16, FP16))
        problem = Problem(
            q,
            k,
            v,
            seen,
            used,
            dtype,
            generic=scores_are_generic(regime, inputs["query"], inputs["key"]),
            generic_values=values_are_generic(regime, inputs["value"]),
            exact=exact,
            by_torch=by_torch,
            fused=by_torch or ours or s.width == s.value_width,
            integer_dq=ours,
        )
        judged = {"o": like(problem.output(), results["o"])}
        if leaves:
            do = five(incoming["o"].values, s.heads, group)
            for name, each in problem.gradients(do, None).items():
                if names[name] in leaves:
                    judged[f"d{names[name]}"] = like(each, results[f"d{names[name]}"])
        return judged

    title = describe(
        dtype=dtype_name(dtype),
        **{n: list(p.view.shape) for n, p in inputs.items()},
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        regime=regime,
        leaves=",".join(leaves),
        **options,
    )
    own = not masked and is_served(s, options["scale"])
    served = own and dtype in (BF16, FP16)
    ours = served and is_ours(draw, as_attention(inputs), {})
    nondeterministic = ()
    if draw.device == "cuda" and not ours:  # FlashAttention, as for attention
        nondeterministic = ("dquery",) if served else ("dquery", "dkey", "dvalue")
    return Case(
        title, inputs, call, judge, leaves, incoming, nondeterministic=nondeterministic, own=own
    )


def as_attention(inputs: dict[str, Placed]) -> Tensors:
    """q, k and v as [B, S, H, D], of [B, H, S, D] or [H, S, D]."""
    given = [inputs[name].view for name in ("query", "key", "value")]
    given = [(t if t.dim() == 4 else t.unsqueeze(0)).transpose(1, 2) for t in given]
    return dict(zip("qkv", given, strict=True))


def like(judged: Judged, result: Tensor) -> Judged:
    """[B, Hk, G, S, D] as [..., H, S, D]."""
    return Judged(judged.want.reshape(result.shape), judged.bound.reshape(result.shape))
