"""The problems on which linear_attention_step is judged, on every backend: one list for all."""

import dataclasses
import itertools

import torch
from torch import Tensor

import thunderkittens
from tests.tools.tensors import BF16, FP16, FP32, FP64, SHORT
from thunderkittens.testing import assert_close, tolerance

OPS = ("linear_attention_step",)
DECAYS = ("none", "head", "token")
LAYOUTS = ("fused", "transposed", "stepped", "expanded")
STATE_LAYOUTS = ("heads first", "one of layers", "gaps", "odd gaps", "offset")


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of linear_attention_step.

    Attributes:
        batch: B.
        heads: H.
        key_heads: Hk.
        key_width: K.
        value_width: V.
        dtype: Of q, k and v.
        decay: One of DECAYS: of what there is a number.
        strength: The logarithms of the decays are between minus this and 0; all are this where it
            is negative.
        indices: "none", "int32" or "int64".
        padding: Of what is indexed, how many are of no state: below 0, and N and above, in turn.
        scale: As given to the op.
        layout: How q, k and v lie in memory, "contiguous" or one of LAYOUTS.
        state_layout: How the states do, "contiguous" or one of STATE_LAYOUTS.
    """

    batch: int = 2
    heads: int = 2
    key_heads: int = 2
    key_width: int = 64
    value_width: int = 64
    dtype: torch.dtype = BF16
    decay: str = "token"
    strength: float = 0.2
    indices: str = "none"
    padding: int = 0
    scale: float | None = None
    layout: str = "contiguous"
    state_layout: str = "contiguous"

    def __str__(self) -> str:
        parts = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                parts.append(f"{field.name}={SHORT.get(value, value)}")
        return ",".join(parts).replace(" ", "_") or "default"


def widths(dtypes=(BF16, FP16, FP32)) -> list[Case]:
    """Each configuration of the kernel; K and V on, above and below what a block has."""
    some = [
        (64, 64),
        (128, 128),
        (256, 32),
        (65, 36),
        (4, 4),
        (1, 1),
        (7, 33),
        (129, 30),
        (16, 100),
    ]
    return [
        Case(heads=2, key_heads=1, key_width=k, value_width=v, dtype=t)
        for (k, v), t in itertools.product(some, dtypes)
    ]


def options(dtype=BF16) -> list[Case]:
    """Kinds of decay and how strong they are, scales, heads that share keys, batches of 0 and 1."""
    return [
        *(Case(decay=d, dtype=dtype) for d in DECAYS),
        *(Case(strength=x, dtype=dtype) for x in (-1e-3, -1.0, -80.0, -200.0, 5.0)),
        *(Case(scale=x, dtype=dtype) for x in (1.0, -0.3, 0.0)),
        Case(3, 6, 2, 20, 40, dtype=dtype),
        Case(1, 4, 1, 16, 16, decay="head", dtype=dtype),
        Case(0, dtype=dtype),
        Case(0, indices="int32", dtype=dtype),
        Case(heads=0, key_heads=0, dtype=dtype),
        Case(value_width=0, dtype=dtype),
    ]


def indexed(dtype=BF16) -> list[Case]:
    """States that are found by index, some of them of padding slots."""
    return [
        Case(batch, 2, 1, 16, 36, indices=t, padding=n, dtype=dtype)
        for t in ("int32", "int64")
        for batch, n in ((1, 0), (1, 1), (5, 0), (5, 1), (5, 3), (5, 5))
    ]


def layouts(dtype=BF16) -> list[Case]:
    """Every way that the tensors and the states may lie in memory."""
    return [
        *(Case(2, 4, 2, 24, 40, layout=x, dtype=dtype) for x in LAYOUTS),
        *(Case(3, 4, 2, 24, 40, state_layout=x, dtype=dtype) for x in STATE_LAYOUTS),
        *(Case(3, 2, 2, 8, 8, indices="int32", state_layout=x) for x in STATE_LAYOUTS),
    ]


EXAMPLE = Case(1, 2, 1, 64, 64)  # of `make sim`
SMALL = "--heads 1 --key-heads 1"
# What tests/tools/budgets.py measures.
BUDGETS = {"linear_attention_step": Case(2, 2, 2, 128, 128)}


def lay_out(t: Tensor, layout: str) -> Tensor:
    """The same values (of the first batch alone when expanded) with other strides."""
    width = t.shape[-1]
    if layout == "expanded":
        return t[:1].expand_as(t)
    if layout == "transposed":
        return t.transpose(0, 1).contiguous().transpose(0, 1)
    if layout == "fused":  # columns of a projection
        return torch.cat([t, t, t], -1)[..., width : 2 * width]
    if layout == "stepped":
        return t.new_zeros(*t.shape[:-1], 2 * width)[..., ::2].copy_(t)
    return t


def lay_out_states(t: Tensor, layout: str) -> Tensor:
    """The same values with other strides, of which the last is 1."""
    states, heads, keys, values = t.shape
    if layout == "heads first":
        return t.transpose(0, 1).contiguous().transpose(0, 1)
    if layout == "one of layers":
        return t.new_zeros(states, 3, heads, keys, values)[:, 1].copy_(t)
    if layout in ("gaps", "odd gaps"):
        more = 8 if layout == "gaps" else 3
        whole = t.new_zeros(states, heads, keys + 1, values + more)
        return whole[:, :, :keys, :values].copy_(t)
    if layout == "offset":
        return t.new_zeros(t.numel() + 1)[1:].view(t.shape).copy_(t)
    return t


def make(case: Case, device: str = "cpu") -> tuple[Tensor | None, ...]:
    """q, k, v, the states, log_decay and state_indices."""
    exact = FP64 if case.dtype == FP64 else FP32
    states = case.batch + (3 if case.indices != "none" else 0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device=device)

    q, k = (normal(case.batch, case.key_heads, case.key_width) for _ in "qk")
    v = normal(case.batch, case.heads, case.value_width)
    tensors = [lay_out(t.to(case.dtype), case.layout) for t in (q, k, v)]
    state = normal(states, case.heads, case.key_width, case.value_width).to(exact)
    decay = None
    if case.decay != "none":
        shape = (case.heads,) if case.decay == "head" else (case.batch, case.heads)
        decay = -case.strength * torch.rand(shape, device=device)
        if case.strength < 0:
            decay = torch.full(shape, case.strength, device=device)
        decay = decay.to(exact)
    indices = None
    if case.indices != "none":
        indices = torch.randperm(states, device=device)[: case.batch]
        outside = torch.tensor([-1, states, -(2**31), 2**31 - 1, -7], device=device)
        indices[torch.randperm(case.batch, device=device)[: case.padding]] = outside[: case.padding]
        indices = indices.to(torch.int32 if case.indices == "int32" else torch.int64)
    return *tensors, lay_out_states(state, case.state_layout), decay, indices


def run_case(case: Case, inputs) -> list[Tensor]:
    """o and a copy of the states, which are put back as they were."""
    q, k, v, state, decay, indices = inputs
    before = state.clone()
    o = thunderkittens.linear_attention_step(
        q, k, v, state, log_decay=decay, scale=case.scale, state_indices=indices
    )
    after = state.clone(memory_format=torch.contiguous_format)
    state.copy_(before)
    return [o, after]


def reference(case: Case, inputs) -> list[Tensor]:
    """What `run_case` should give, and how far it may be from it, in float64."""
    q, k, v, state, decay, indices = inputs
    inner = FP64 if case.dtype == FP64 else FP32
    rounding, share = 2 * tolerance.unit(inner), case.heads // max(case.key_heads, 1)
    smallest = torch.finfo(inner).smallest_normal  # what the kernel takes for 0 is below
    scale = case.key_width**-0.5 if case.scale is None else case.scale
    states, state_bound = state.double(), torch.zeros(state.shape, dtype=FP64, device=state.device)
    o = torch.zeros(v.shape, dtype=FP64, device=v.device)
    o_bound = torch.zeros_like(o)
    for b in range(case.batch):
        slot = b if indices is None else int(indices[b])
        if not 0 <= slot < state.shape[0]:
            continue
        keys, query = (t[b].double().repeat_interleave(share, 0) for t in (k, q))  # [H, K]
        g = torch.zeros(case.heads, dtype=FP64, device=v.device)
        if decay is not None:
            g = (decay if decay.dim() == 1 else decay[b]).double()
        kept = g.exp()[:, None, None] * states[slot]
        added = keys[:, :, None] * v[b].double()[:, None, :]
        # 2^x within 2 ulp, of an x that is rounded twice; a product and a sum.
        of_decay = (6 + 3 * g.abs())[:, None, None] * kept.abs()
        bound = rounding * (of_decay + 2 * (kept.abs() + added.abs()))
        bound += smallest * (1 + states[slot].abs())
        new = kept + added
        o[b] = scale * torch.einsum("hk,hkv->hv", query, new)
        size = torch.einsum("hk,hkv->hv", query.abs(), new.abs())
        slack = tolerance.accumulation(case.key_width, inner) * size
        slack += torch.einsum("hk,hkv->hv", query.abs(), bound) + 2 * rounding * size
        o_bound[b] = abs(scale) * slack
        states[slot], state_bound[slot] = new, bound
    o_bound += 2 * tolerance.unit(case.dtype) * o.abs() + tolerance.floor(case.dtype)
    return [o, states, o_bound, state_bound]


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave against float64."""
    o, states = results
    want, want_states, bound, state_bound = reference(case, inputs)
    assert o.dtype == case.dtype
    assert o.is_contiguous()
    assert_close(o, want, bound, "o")
    assert_close(states, want_states, state_bound, "state")
    if case.indices == "none":
        return
    slots = inputs[5].tolist()
    there = [i for i in slots if 0 <= i < states.shape[0]]
    others = [i for i in range(states.shape[0]) if i not in there]
    assert torch.equal(states[others], inputs[3][others]), "a state that no index names was written"
    padding = [b for b, i in enumerate(slots) if i not in there]
    assert not o[padding].any(), "o of padding must be 0"
