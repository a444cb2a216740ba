"""rotary: two products and a sum in float32, rounded once; the rest of a head keeps its bits."""

from __future__ import annotations

import torch
from torch import Tensor

import thunderkittens
from tests.fuzz.arithmetic import Arithmetic, Number
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import BF16, DTYPES, FP16, FP32, Draw, split
from tests.fuzz.placement import Placed

OPS = ("rotary",)


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    table = FP32 if dtype in (FP16, BF16) and draw.chance(0.4) else dtype
    width = draw.choice((2, 6, 16, 64, 80, 96, 128, 256, draw.size(1024), draw.size(1100)))
    if draw.chance(0.05):
        width = draw.choice((512, 1000, 1022, 1023, 1024))
    pairs = draw.choice((width // 2, width // 2, width // 4, draw.integer(0, width // 2)))
    most = max(1, draw.elements() // width)
    heads = draw.size(min(most, 40))
    key_heads = draw.choice((heads, 1, max(1, heads // 4), draw.integer(0, heads)))
    tokens = draw.size(max(1, most // heads))
    batch = draw.size(max(1, tokens // 4)) if draw.chance(0.6) else 1
    tokens = max(1, tokens // batch)
    packed = draw.chance(0.35)
    lengths = split(draw, tokens * batch) if packed else ()
    count = len(lengths) if packed else batch
    longest = max(lengths, default=0) if packed else tokens

    kind = draw.choice(("none", "none", "integer", "tensor", "far"))
    offset = draw.integer(0, 50) if kind == "integer" else 0
    offsets = drawn_offsets(draw, kind, count)
    rows = max(longest, 1) + offset + draw.choice((0, 0, 5))
    leading = (sum(lengths) + draw.choice((0, 0, 3)),) if packed else (batch, tokens)

    regime = draw.regime(without=("edge",))
    inplace = draw.chance(0.35)
    inputs = {}
    for name, many in (("q", heads), ("k", key_heads)):
        shape = (*leading, many, width)
        named = "normal" if 0 in shape and regime == "one-hot" else regime
        inputs[name] = draw.place(draw.values(shape, dtype, named), expand=not inplace)
    inputs |= tables(draw, rows, pairs, table)
    if offsets is not None:
        inputs["offsets"] = draw.place(offsets, expand=True)
    if packed:
        starts = torch.tensor((0, *lengths), device=draw.device).cumsum(0)
        inputs["cu_seqlens"] = draw.place(starts.int() if draw.chance(0.5) else starts)
    options = {"interleaved": draw.chance(0.5), "inplace": inplace}
    if offset or (offsets is None and draw.chance(0.2)):
        options["offsets"] = offset
    if packed:
        options["max_seqlen"] = longest + draw.choice((0, 0, rows - max(longest, 1) - offset))
    leaves = tuple(n for n in ("q", "k") if draw.chance(0.6))
    incoming = {
        f"{n}_out": draw.place(draw.values(inputs[n].view.shape, dtype, "normal"), expand=True)
        for n in ("q", "k")
    }

    def call(tensors: Tensors) -> Tensors:
        turned = thunderkittens.rotary(**tensors, **options)
        return dict(zip(("q_out", "k_out"), turned, strict=True))

    def judge(results: Tensors) -> dict[str, Judged]:
        values = {n: p.values for n, p in inputs.items()}
        at = positions(values, leading, packed, offset).clamp(0, rows - 1)
        c, s = values["cos"].double()[at], values["sin"].double()[at]
        judged = {}
        for name in ("q", "k"):
            judged[f"{name}_out"] = turned_by(values[name], c, s, options["interleaved"])
            if inplace:
                judged[name] = judged[f"{name}_out"]
            if name in leaves:
                given = incoming[f"{name}_out"].values
                judged[f"d{name}"] = turned_by(given, c, -s, options["interleaved"])
        return judged

    title = describe(
        dtype=dtype_name(dtype),
        table=dtype_name(table),
        q=list(inputs["q"].view.shape),
        k_heads=key_heads,
        table_shape=[rows, pairs],
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        regime=regime,
        lengths=lengths[:8],
        kind=kind,
        leaves=",".join(leaves),
        **options,
    )
    written = ("q", "k") if inplace else ()
    return Case(title, inputs, call, judge, leaves, incoming if leaves else {}, written)


def drawn_offsets(draw: Draw, kind: str, count: int) -> Tensor | None:
    """Those on the device, if any: within the table mostly, or "far" from it."""
    if kind not in ("tensor", "far"):
        return None
    far = 2**62 if kind == "far" else 20
    offsets = draw.integers((count,), -far, far)
    return offsets.int() if kind == "tensor" and draw.chance(0.5) else offsets


def tables(draw: Draw, rows: int, pairs: int, dtype: torch.dtype) -> dict[str, Placed]:
    """Of cosines and sines."""
    angle = draw.uniform((rows, pairs)) * 6.3
    both = {"cos": angle.cos(), "sin": angle.sin()}
    return {name: draw.place(t.to(dtype), expand=True) for name, t in both.items()}


def positions(values: Tensors, leading: tuple[int, ...], packed: bool, offset: int) -> Tensor:
    """Of each token, before it is clamped to the table: [S], [B, S] or packed [N].

    A token past the last sequence counts from there, without an offset of the device's.
    """
    device, offsets = values["q"].device, values.get("offsets")
    far = 2**61  # so that sums do not overflow
    if offsets is not None:
        offsets = offsets.long().clamp(-far, far)
    if not packed:
        at = torch.arange(leading[1], device=device) + offset
        return at if offsets is None else at + offsets[:, None]
    starts = values["cu_seqlens"].long()
    token = torch.arange(leading[0], device=device)
    sequence = (token[:, None] >= starts).sum(1) - 1  # the first start is 0
    at = token - starts[sequence] + offset
    if offsets is None:
        return at
    return at + torch.cat([offsets, offsets.new_zeros(1)])[sequence]


def turned_by(x: Tensor, c: Tensor, s: Tensor, interleaved: bool) -> Judged:
    """x [..., H, D]; c and s [..., R / 2], a row for each token."""
    arithmetic, pairs = Arithmetic.of(x.dtype), c.shape[-1]
    first = slice(0, 2 * pairs, 2) if interleaved else slice(0, pairs)
    second = slice(1, 2 * pairs, 2) if interleaved else slice(pairs, 2 * pairs)
    c, s = c.unsqueeze(-2), s.unsqueeze(-2)
    want = x.double().clone()
    bound = torch.zeros_like(want)
    a, b = (Number(arithmetic, x.double()[..., part]) for part in (first, second))
    for part, number in ((first, a * c - b * s), (second, a * s + b * c)):
        number = number.rounded(x.dtype)
        want[..., part], bound[..., part] = number.value, number.error
    return Judged(want, bound)
