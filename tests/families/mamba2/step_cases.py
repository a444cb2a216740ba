"""The problems on which mamba2_step is judged, on every backend: one list for all tests."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

import thunderkittens
from tests.families.mamba2.cases import BF16, FP16, FP32, FP64
from thunderkittens.testing import assert_close, tolerance


@dataclasses.dataclass(frozen=True)
class StepCase:
    """One call of mamba2_step.

    Attributes:
        batch: B.
        heads: H.
        groups: G.
        head_width: P.
        state_width: N.
        dtype: Of x, B, C and z.
        dt_dtype: Of dt and dt_bias; None for `dtype`.
        options: Whether there are D, z, dt_bias and softplus.
        indices: Of which dtype, or None: there are then more states than batches, and padding.
        layout: "contiguous"; "split": columns of wider tensors; "stepped": every second element;
            "states": that begin at no multiple of 16 bytes; "tokens": states with gaps.
    """

    batch: int = 3
    heads: int = 4
    groups: int = 1
    head_width: int = 64
    state_width: int = 64
    dtype: torch.dtype = BF16
    dt_dtype: torch.dtype | None = None
    options: bool = True
    indices: torch.dtype | None = None
    layout: str = "contiguous"

    def __str__(self) -> str:
        fields = ((f.name, getattr(self, f.name), f.default) for f in dataclasses.fields(self))
        shown = [f"{n}={v}".replace("torch.", "") for n, v, default in fields if v != default]
        return ",".join(shown) or "default"


def widths(dtypes=(BF16,)) -> list[StepCase]:
    """Each configuration of the kernel, and widths below it."""
    some = [(64, 128), (64, 256), (40, 16), (8, 24), (100, 96), (7, 200), (3, 33), (1, 1), (5, 250)]
    return [StepCase(2, 2, 1, p, n, t) for p, n in some for t in dtypes]


def options(dtype=BF16) -> list[StepCase]:
    """All else."""
    return [
        StepCase(dtype=dtype),
        StepCase(dtype=dtype, options=False),
        StepCase(4, 6, 2, 16, 16, dtype),
        StepCase(dtype=dtype, dt_dtype=FP64 if dtype == FP64 else FP32),
        StepCase(dtype=dtype, indices=torch.int32),
        StepCase(5, 2, 1, 24, 40, dtype, indices=torch.int64),
        *(StepCase(dtype=dtype, layout=x) for x in ("split", "stepped", "states", "tokens")),
    ]


def make(case: StepCase, device: str = "cpu") -> tuple[Tensor | None, ...]:
    """x, dt, A, B, C, state, D, z, dt_bias and state_indices."""
    exact = FP64 if case.dtype == FP64 else FP32
    batch, heads, width = case.batch, case.heads, case.head_width

    def normal(*shape: int, dtype: torch.dtype = case.dtype) -> Tensor:
        wide = torch.randn(*shape[:-1], 3 * shape[-1], device=device).to(dtype)
        if case.layout == "split":
            return wide[..., shape[-1] : 2 * shape[-1]]
        if case.layout == "stepped":
            return wide[..., : 2 * shape[-1] : 2]
        return wide[..., : shape[-1]].contiguous()

    x, z = normal(batch, heads, width), normal(batch, heads, width)
    B, C = (normal(batch, case.groups, case.state_width) for _ in "BC")
    dt = normal(batch, heads, dtype=case.dt_dtype or case.dtype)
    A = -torch.rand(heads, device=device).to(exact)
    count = batch + 2 if case.indices else batch
    sizes = (count, heads, width, case.state_width)
    state = torch.randn(sizes, device=device).to(exact)
    if case.layout == "states":
        state = state.new_zeros(state.numel() + 1)[1:].view(sizes).copy_(state)
    if case.layout == "tokens":
        state = torch.stack([state, state], 1)[:, 1]
    indices = None
    if case.indices:
        indices = torch.randperm(count, device=device)[:batch].to(case.indices)
        indices[0], indices[-1] = -1, count
    if not case.options:
        return x, dt, A, B, C, state, None, None, None, indices
    D, bias = torch.randn(2, heads, device=device).unbind()
    return x, dt, A, B, C, state, D.to(exact), z, bias.to(dt.dtype), indices


def run(case: StepCase, inputs) -> tuple[Tensor, Tensor]:
    """y and the states, which are those that were given."""
    x, dt, A, B, C, state, D, z, bias, indices = inputs
    y = thunderkittens.mamba2_step(
        *(x, dt, A, B, C, state),
        D=D,
        z=z,
        dt_bias=bias,
        dt_softplus=case.options,
        state_indices=indices,
    )
    return y, state


def check(case: StepCase, inputs, results) -> None:
    """Asserts y and the states against float64; those of no batch keep their bits."""
    want_y, want_state, size_y, size_state = reference(case, inputs)
    y, state = results
    assert y.dtype == case.dtype
    assert y.is_contiguous()
    inner = FP64 if case.dtype == FP64 else FP32
    # Exponents and gates are some roundings of their arguments; sums are of N terms.
    slack = tolerance.accumulation(case.state_width + 40, inner)
    rounding = 2 * tolerance.unit(case.dtype) * want_y.abs()
    assert_close(y, want_y, rounding + slack * size_y + tolerance.floor(case.dtype), "y")
    assert_close(state, want_state, slack * size_state, "state")
    for i, was in enumerate(inputs[5]):
        if torch.equal(was.double(), want_state[i]):
            assert torch.equal(state[i], was), i


def reference(case: StepCase, inputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y and all states in float64, and their sums of absolute values."""
    x, dt, A, B, C, state, D, z, bias, indices = (
        t if t is None or i == 9 else t.double() for i, t in enumerate(inputs)
    )
    states, sizes = state.clone(), state.abs()
    y, size_y = torch.zeros_like(x), torch.zeros_like(x)
    for b in range(case.batch):
        slot = b if indices is None else int(indices[b])
        if not 0 <= slot < len(state):
            continue
        for h in range(case.heads):
            group = h // (case.heads // case.groups)
            step = dt[b, h] + (bias[h] if bias is not None else 0)
            step = F.softplus(step) if case.options else step
            decay = torch.exp(step * A[h])
            added = step * torch.outer(x[b, h], B[b, group])
            states[slot, h] = decay * state[slot, h] + added
            sizes[slot, h] = decay * state[slot, h].abs() + added.abs()
            y[b, h] = states[slot, h] @ C[b, group]
            size_y[b, h] = sizes[slot, h] @ C[b, group].abs()
            if D is not None:
                y[b, h] += D[h] * x[b, h]
                size_y[b, h] += (D[h] * x[b, h]).abs()
            if z is not None:
                y[b, h] *= F.silu(z[b, h])
                size_y[b, h] *= F.silu(z[b, h]).abs()
    return y, states, size_y, sizes


ALL_DTYPES = (BF16, FP16, FP32)
