"""The problems on which based_attention_step is judged, on every backend: one list for all."""

import dataclasses
import itertools

import torch
from torch import Tensor

import thunderkittens
from tests.tools.tensors import BF16, FP16, FP32, FP64, SHORT, lay_out
from thunderkittens.testing import assert_close, tolerance

OPS = ("based_attention_step",)
LAYOUTS = ("expanded", "offset", "sliced", "stepped", "transposed")
STATE_LAYOUTS = ("offset", "sliced", "transposed")  # of which the last stride is 1


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of based_attention_step.

    Attributes:
        batch: B.
        heads: H.
        key_width: D.
        value_width: V.
        dtype: Of q, k and v.
        normalize: As given to the op.
        scale: As given to the op.
        eps: As given to the op.
        layout: How q, k and v lie in memory, "contiguous" or one of LAYOUTS.
        state_layout: How state and sums do, "contiguous" or one of STATE_LAYOUTS.
    """

    batch: int = 2
    heads: int = 2
    key_width: int = 16
    value_width: int = 64
    dtype: torch.dtype = BF16
    normalize: bool = True
    scale: float | None = None
    eps: float = 1e-12
    layout: str = "contiguous"
    state_layout: str = "contiguous"

    def __str__(self) -> str:
        parts = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                parts.append(f"{field.name}={SHORT.get(value, value)}")
        return ",".join(parts) or "default"


def widths(dtypes=(BF16, FP16, FP32)) -> list[Case]:
    """Each configuration of the kernel; V on, above and below what a block takes at a time."""
    some = [(16, 64), (8, 64), (16, 128), (16, 20), (1, 1), (7, 33), (15, 132), (3, 68), (16, 31)]
    return [
        Case(key_width=k, value_width=v, dtype=t) for (k, v), t in itertools.product(some, dtypes)
    ]


def options(dtype=BF16) -> list[Case]:
    """Scales, eps, with and without denominators, and nothing to do."""
    return [
        *(Case(scale=x, dtype=dtype) for x in (1.0, 0.01)),
        Case(eps=10.0, dtype=dtype),
        Case(3, 5, 8, 24, dtype, normalize=False),
        Case(1, 3, 16, 100, dtype, normalize=False, scale=0.5),
        Case(0, dtype=dtype),
        Case(heads=0, dtype=dtype),
        Case(value_width=0, dtype=dtype),
    ]


def layouts(dtype=BF16) -> list[Case]:
    """Every way that the tensors and the states may lie in memory."""
    return [
        *(Case(2, 3, 8, 40, dtype, layout=x) for x in LAYOUTS),
        *(Case(2, 3, 8, 40, dtype, state_layout=x) for x in STATE_LAYOUTS),
    ]


EXAMPLE = Case(1, 2)  # of `make sim`
SMALL = "--heads 1"
# What tests/tools/budgets.py measures.
BUDGETS = {"based_attention_step": Case(2, 2)}


def make(case: Case, device: str = "cpu") -> tuple[Tensor | None, ...]:
    """q, k, v, the state and its sums, of seven earlier tokens."""
    exact = FP64 if case.dtype == FP64 else FP32
    rows = (case.batch, case.heads)
    q, k = torch.randn(2, *rows, case.key_width, device=device).unbind()
    v = torch.randn(*rows, case.value_width, device=device)
    tensors = [lay_out(t.to(case.dtype), case.layout) for t in (q, k, v)]
    earlier = torch.randn(*rows, 7, case.key_width, device=device)
    before = thunderkittens.based_features(earlier, scale=case.scale)  # sums that can be
    state = before.mT @ torch.randn(*rows, 7, case.value_width, device=device)
    sums = lay_out(before.sum(2).to(exact), case.state_layout) if case.normalize else None
    return *tensors, lay_out(state.to(exact), case.state_layout), sums


def call(case: Case, q, k, v, state, sums) -> Tensor:
    """The op."""
    return thunderkittens.based_attention_step(
        q,
        k,
        v,
        (state, sums) if case.normalize else state,
        normalize=case.normalize,
        scale=case.scale,
        eps=case.eps,
    )


def run_case(case: Case, inputs) -> list[Tensor]:
    """o and copies of state and sums, which are put back as they were."""
    states = [t for t in inputs[3:] if t is not None]
    before = [t.clone() for t in states]
    o = call(case, *inputs)
    after = [t.clone(memory_format=torch.contiguous_format) for t in states]
    for t, old in zip(states, before, strict=True):
        t.copy_(old)
    return [o, *after]


def reference(case: Case, inputs) -> tuple[list[Tensor], list[Tensor]]:
    """What `run_case` should give, and how far it may be from it, in float64."""
    q, k, v, state, sums = (t if t is None else t.double() for t in inputs)
    inner = FP64 if case.dtype == FP64 else FP32
    rounding = (4 if inner == FP64 else 2) * tolerance.unit(inner)  # in float64 of both
    of_q, of_k = (thunderkittens.based_features(t, scale=case.scale) for t in (q, k))
    # A feature: two products, and the scale, its root or their √½ rounded once or twice.
    of_feature = 5 * rounding

    def updated(old: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
        new = old + added  # a product and a sum
        return new, (of_feature + rounding) * added.abs() + rounding * new.abs()

    def read(new: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
        factor = of_q if new.dim() == 3 else of_q[..., None]
        size = (factor * new).abs().sum(2)
        slack = (tolerance.accumulation(new.shape[2], inner) + of_feature) * size
        return (factor * new).sum(2), slack + (factor.abs() * bound).sum(2)

    new, bound = updated(state, of_k[..., None] * v[..., None, :])
    o, o_bound = read(new, bound)
    results, bounds = [new], [bound]
    if case.normalize:
        new_sums, sums_bound = updated(sums, of_k)
        weight, weight_bound = read(new_sums, sums_bound)
        weight = (weight + case.eps)[..., None]
        weight_bound = weight_bound[..., None] + rounding * weight
        o = o / weight
        o_bound = (o_bound + o.abs() * weight_bound) / (weight - weight_bound)
        o_bound += 2 * rounding * o.abs()
        results.append(new_sums), bounds.append(sums_bound)
    o_bound = o_bound + 2 * tolerance.unit(case.dtype) * o.abs() + tolerance.floor(case.dtype)
    return [o, *results], [o_bound, *bounds]


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave against float64."""
    assert results[0].dtype == case.dtype
    assert results[0].is_contiguous()
    names = ("o", "state", "sums")
    for name, got, want, bound in zip(names, results, *reference(case, inputs), strict=False):
        assert_close(got, want, bound, name)
