"""attention's gradients in float64, each element with a bound: fuzz_reference.py's, for a Case.

Bounds depend on who computes: torch's fused attention, torch's formula in float32, or a kernel of
ours, which rounds p and ds to 16 bits and adds dq up in integers.
"""

from __future__ import annotations

import dataclasses
import itertools

from torch import Tensor

from tests.families.attention import cases, fuzz
from tests.families.attention.cases import Case
from tests.families.attention.explained import is_differentiated_by_us
from tests.fuzz import judge
from tests.fuzz.case import Judged


def is_ours(case: Case, tensors: list[Tensor]) -> bool:
    """Whether a kernel of ours computes the gradients, by the backend in force."""
    q, k, v, *extra = tensors
    return is_differentiated_by_us(q, k, v, **cases.options(case, *extra))


def is_deterministic(case: Case, tensors: list[Tensor]) -> bool:
    """Whether gradients have to have the same bits on every run: torch's on a GPU do not."""
    return tensors[0].is_cpu or is_ours(case, tensors)


def shape_of(case: Case) -> fuzz.Shape:
    """As fuzz.py says it. Packed rows and keys begin with as many that are of no sequence."""
    ends = (case.cu_seqlens_q, case.cu_seqlens_k)
    lengths = [tuple(b - a for a, b in itertools.pairwise(end)) for end in ends]
    before = {end[0] for end in ends if end}
    assert len(before) <= 1, "fuzz.Shape has one number for both"
    heads = (case.heads, case.key_heads, case.head_dim, case.values)
    ranges = tuple((r.start, r.stop) for r in case.key_ranges()) if case.bounded else ()
    sizes = (case.batch, case.rows, case.keys)
    return fuzz.Shape(*sizes, *heads, *lengths, *before, key_ranges=ranges)


def judged(
    case: Case, tensors: list[Tensor], dout: Tensor, dlse: Tensor | None, generic: bool = True
) -> dict[str, Judged]:
    """dq, dk, dv, dsinks: references and bounds, shaped as the op gives them.

    Args:
        case: The call.
        tensors: As `cases.make` gives them.
        dout: The gradient of o.
        dlse: That of lse, or None.
        generic: Whether the numbers are unrelated ones, so that their roundings are independent.
    """
    q, k, v, *extra = tensors
    given = cases.options(case, *extra)
    values = {"q": q.detach(), "k": k.detach(), "v": v.detach()}
    names = ("sinks", "cu_seqlens_q", "cu_seqlens_k", "seqused_k", "leftpad_k")
    values |= {n: given[n] for n in names if n in given}
    options = {n: value for n, value in given.items() if n not in values}
    incoming = {"o": dout} if dlse is None else {"o": dout, "lse": dlse}
    s, ours = shape_of(case), is_ours(case, tensors)
    by_torch = cases.served_by(case, *tensors) == "torch"
    plain = fuzz.is_plain(options, values, incoming) and (by_torch or s.width == s.value_width)
    problem = dataclasses.replace(
        fuzz.stated(s, values, options, case.dtype),
        generic=generic,
        generic_values=generic,
        by_torch=by_torch,
        fused=ours or plain,
        integer_dq=ours,
        sink_parts=len(s.row_lengths) + 2 if by_torch and s.packed else 1,
    )
    return fuzz.judged_backward(problem, s, incoming)


def check(found: dict[str, Judged], got: list[Tensor | None]) -> None:
    """Asserts dq, dk, dv (and dsinks) that are not None, element by element."""
    names = ("dq", "dk", "dv", "dsinks")
    wrong = [
        judge.explain(name, t, found[name])
        for name, t in zip(names, got, strict=False)
        if t is not None and not bool(judge.right(t, found[name]).all())
    ]
    assert not wrong, "; ".join(wrong)


def check_power(found: dict[str, Judged], most: float = 0.1) -> None:
    """Asserts that the bounds say something: small beside the gradients, in the mean of squares."""
    for name, each in found.items():
        size = each.want.square().mean().sqrt()
        assert float(each.bound.square().mean().sqrt()) <= most * float(size), name
