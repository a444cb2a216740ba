"""The problems on which mamba2 is judged, on every backend: one list for all tests."""

import dataclasses
import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

import thunderkittens
from tests.families.mamba2.packed import of_sequences
from thunderkittens.testing import assert_close, tolerance

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
SHORT = {FP32: "fp32", FP16: "fp16", BF16: "bf16", FP64: "fp64"}
CHUNK = 64  # tokens

LAYOUTS = ("fused", "transposed", "offset", "stepped", "expanded")
INPUTS = ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_state")


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of mamba2, and its gradients.

    Attributes:
        batch: B.
        length: S.
        heads: H.
        groups: G.
        head_width: P.
        state_width: N.
        dtype: Of x, B, C and z.
        dt_dtype: Of dt and dt_bias; None for `dtype`.
        strength: −A is between this and twice this.
        steps: Added to dt, which is normally distributed; dt' is its softplus.
        softplus: Whether it is; else its absolute value.
        limit: As given to the op.
        bias: Whether there is one of dt.
        d: The dimensions of D; 0 for none.
        z: Whether there is one.
        states: Whether there is an initial state, and a final one is asked for.
        layout: How x, dt, B, C, z and the gradient of y lie in memory, "contiguous" or one of
            LAYOUTS.
        ends: Where sequences packed into the one batch start and end; or none. Tokens before and
            behind them hold NaN.
    """

    batch: int = 1
    length: int = 130
    heads: int = 2
    groups: int = 1
    head_width: int = 64
    state_width: int = 64
    dtype: torch.dtype = BF16
    dt_dtype: torch.dtype | None = None
    strength: float = 0.5
    steps: float = -2.0
    softplus: bool = True
    limit: tuple[float, float] = (0.0, math.inf)
    bias: bool = True
    d: int = 1
    z: bool = False
    states: bool = True
    layout: str = "contiguous"
    ends: tuple[int, ...] = ()

    @property
    def sequences(self) -> int:
        """Of which each has a state."""
        return len(self.ends) - 1 if self.ends else self.batch

    def __str__(self) -> str:
        parts = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                text = str(SHORT.get(value, value))
                parts.append(text if field.name in ("dtype", "layout") else f"{field.name}={text}")
        return ",".join(parts).replace(" ", "") or "default"


def lengths(chunks=(0, 1, 2, 5), dtype=BF16) -> list[Case]:
    """Around the ends of chunks, of which several make a segment."""
    ends = sorted({max(1, CHUNK * n + i) for n in chunks for i in (-1, 0, 1)})
    return [Case(length=n, heads=1, dtype=dtype) for n in ends]


def widths(dtypes=(BF16, FP16)) -> list[Case]:
    """Each configuration of the kernel, and widths below it."""
    some = [(64, 128), (128, 64), (128, 128), (8, 8), (64, 16), (72, 40), (24, 96)]
    return [
        Case(length=70, head_width=p, state_width=n, dtype=t)
        for (p, n), t in itertools.product(some, dtypes)
    ]


def options(dtype=BF16) -> list[Case]:
    """With and without each of what may be left out; steps and decays from nothing to much."""
    return [
        Case(bias=False, d=0, states=False, softplus=False, dtype=dtype),
        Case(bias=False, dt_dtype=FP64 if dtype == FP64 else FP32, dtype=dtype),
        Case(d=0, dtype=dtype),
        Case(d=2, z=True, dtype=dtype),
        Case(z=True, states=False, dtype=dtype),
        Case(softplus=False, limit=(0.5, 1.0), dtype=dtype),
        Case(limit=(0.01, 0.2), dtype=dtype),
        *(Case(steps=x, dtype=dtype) for x in (-9.0, 2.0, 25.0)),
        *(Case(strength=x, dtype=dtype) for x in (1e-3, 16.0, 300.0)),
        Case(2, 90, 6, 2, dtype=dtype),
        Case(3, 5, 4, 4, dtype=dtype),
        Case(2, 300, 11, 1, 8, 8, dtype=dtype),  # tiles of gates with a rest
    ]


def layouts(dtype=BF16) -> list[Case]:
    """Every way that the tensors may lie in memory."""
    return [Case(2, 67, layout=x, dtype=dtype) for x in LAYOUTS]


def packed(dtype=BF16) -> list[Case]:
    """Sequences one behind the other: of no token, of one, around the ends of chunks."""
    return [
        Case(length=256, ends=(0, 63, 63, 127, 128, 193, 256), groups=2, z=True, dtype=dtype),
        Case(length=130, ends=(0, 130), softplus=False, d=2, dtype=dtype),
        Case(length=195, ends=(0, 65, 129, 195), states=False, bias=False, d=0, dtype=dtype),
        Case(length=200, ends=(3, 3, 67, 180), dtype=dtype),
        Case(length=75, ends=(0, 1, 70, 70), d=2, layout="fused", dtype=dtype),
        Case(length=70, ends=(5, 6, 70), limit=(0.05, 0.2), layout="transposed", dtype=dtype),
        Case(1, 530, 11, 1, 8, 8, ends=(3, 250, 520), dtype=dtype),
    ]


EXAMPLE = Case()  # of `make sim`
SMALL = "--length 66 --heads 1"  # options of `make sim`, for its tests
# What tests/tools/budgets.py measures.
BUDGETS = {"mamba2": Case(1, 256, 1, 1, 64, 64)}


def lay_out(t: Tensor, layout: str) -> Tensor:
    """The same values (of the first token alone when expanded) with other strides."""
    if layout == "expanded":
        return t[:, :1].expand_as(t)
    if layout == "transposed":
        return t.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "fused":  # columns of a projection
        return torch.cat([t, t, t], -1)[..., t.shape[-1] : 2 * t.shape[-1]]
    if layout == "offset":
        return t.new_zeros(t.numel() + 1)[1:].view(t.shape).copy_(t)
    if layout == "stepped":
        return t.new_zeros(*t.shape[:-1], 2 * t.shape[-1])[..., ::2].copy_(t)
    return t


def make(case: Case, device: str = "cpu") -> tuple[Tensor | None, ...]:
    """INPUTS, and the gradients of y and of the final state."""
    exact = FP64 if case.dtype == FP64 else FP32
    dt_dtype = case.dt_dtype or case.dtype

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device=device)

    tokens, heads, width = (case.batch, case.length), case.heads, case.head_width
    x, z, dy = (normal(*tokens, heads, width) for _ in range(3))
    B, C = (normal(*tokens, case.groups, case.state_width) for _ in "BC")
    dt = normal(*tokens, heads)
    dt = dt + case.steps if case.softplus else dt.abs() + 0.05
    x, B, C, z, dy = (lay_out(t.to(case.dtype), case.layout) for t in (x, B, C, z, dy))
    dt = lay_out(dt.to(dt_dtype), case.layout)
    A = -case.strength * (1 + torch.rand(heads, device=device)).to(exact)
    if case.ends:
        x, dt, B, C, z, dy = (t.squeeze(0) for t in (x, dt, B, C, z, dy))
        for t in (x, dt, B, C, dy):
            t[: case.ends[0]] = t[case.ends[-1] :] = math.nan
    D = normal(heads, width)[:, 0 if case.d == 1 else slice(None)].to(exact) if case.d else None
    bias = (normal(heads) if case.softplus else normal(heads).abs()).to(dt_dtype)
    initial, d_final = (
        normal(case.sequences, heads, width, case.state_width).to(exact) if case.states else None
        for _ in "if"
    )
    z = z if case.z else None
    return x, dt, A, B, C, D, z, bias if case.bias else None, initial, dy, d_final


def keywords(case: Case, D, z, dt_bias, initial_state, device: str = "cpu") -> dict:
    """What the op is given by name."""
    return {
        "D": D,
        "z": z,
        "dt_bias": dt_bias,
        "dt_softplus": case.softplus,
        "dt_limit": case.limit,
        "initial_state": initial_state,
        "return_final_state": case.states,
        **({"cu_seqlens": torch.tensor(case.ends, device=device)} if case.ends else {}),
    }


def gradients(case: Case, leaves, outputs, d_outputs) -> list[Tensor]:
    """The outputs, and the gradients of all inputs that there are."""
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    found = torch.autograd.grad(
        outputs, [t for t in leaves if t is not None], [t for t in d_outputs if t is not None]
    )
    return [*(t.detach() for t in outputs), *found]


def run_case(case: Case, inputs) -> list[Tensor]:
    """y, with states the final one, and the gradients of all inputs, by the backend in force."""
    leaves = [None if t is None else t.detach().requires_grad_() for t in inputs[:9]]
    outputs = thunderkittens.mamba2(*leaves[:5], **keywords(case, *leaves[5:], inputs[0].device))
    return gradients(case, leaves, outputs, inputs[9:])


def steps_of(case: Case, dt, bias) -> Tensor:
    """dt'."""
    dt = dt if bias is None else dt + bias
    dt = F.softplus(dt) if case.softplus else dt
    return dt.clamp(*case.limit)


def recurrence(case: Case, x, dt, A, B, C, D, z, bias, initial) -> tuple[Tensor, Tensor]:
    """y and the final state, token by token: the definition. Of tensors of one dtype."""
    batch, length, heads, width = x.shape
    B, C = (t.repeat_interleave(heads // t.shape[2], 2) for t in (B, C))
    steps = steps_of(case, dt, bias)
    state = initial if initial is not None else x.new_zeros(batch, heads, width, B.shape[-1])
    outputs = []
    for t in range(length):
        step = steps[:, t, :, None, None]
        state = torch.exp(step * A[:, None, None]) * state
        state = state + step * x[:, t, :, :, None] * B[:, t, :, None]
        outputs.append(torch.einsum("bhpn,bhn->bhp", state, C[:, t]))
    y = torch.stack(outputs, 1)
    if D is not None:
        y = y + (D if D.dim() == 2 else D[:, None]) * x
    return y if z is None else y * F.silu(z), state


def parallel(case: Case, x, dt, A, B, C, D, z, bias, initial) -> tuple[Tensor, Tensor]:
    """The same by the sum over all earlier tokens, which is quicker."""
    steps = steps_of(case, dt, bias)
    y, state = attend(steps * A, steps, x, B, C, initial)
    if D is not None:
        y = y + (D if D.dim() == 2 else D[:, None]) * x
    return y if z is None else y * F.silu(z), state


def attend(decay, steps, x, B, C, initial) -> tuple[Tensor, Tensor]:
    """Without D and z, from dt' A and dt'."""
    length, heads = x.shape[1:3]
    B, C, x = (t.repeat_interleave(heads // t.shape[2], 2).transpose(1, 2) for t in (B, C, x))
    sums = decay.cumsum(1).transpose(1, 2)  # [B, H, S]
    steps = steps.transpose(1, 2).unsqueeze(-1)
    hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
    exponents = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).masked_fill(hidden, -torch.inf)
    y = (C @ B.mT * exponents.exp()) @ (steps * x)
    to_end = sums[..., -1:] - sums
    state = (steps * x * to_end.exp().unsqueeze(-1)).mT @ B
    if initial is not None:
        y = y + (C @ initial.mT) * sums.exp().unsqueeze(-1)
        state = state + initial * sums[..., -1].exp()[..., None, None]
    return y.transpose(1, 2), state


def reference(case: Case, inputs, function=parallel) -> list[Tensor]:
    """What `run_case` should give, in float64, by a function such as `recurrence`."""
    if case.ends:

        def by_name(*one) -> dict[str, Tensor]:
            return dict(zip(names(case), reference(*one, function), strict=True))

        found = of_sequences(case, inputs, by_name)
        return [found[name] for name in names(case)]
    leaves = [None if t is None else t.detach().double().requires_grad_() for t in inputs[:9]]
    outputs = function(case, *leaves)[: 2 if case.states else 1]
    return gradients(case, leaves, outputs, [t if t is None else t.double() for t in inputs[9:]])


def names(case: Case) -> list[str]:
    """Of what `run_case` gives."""
    there = (True,) * 5 + (case.d > 0, case.z, case.bias, case.states)
    given = [f"d{name}" for name, yes in zip(INPUTS, there, strict=True) if yes]
    return ["y", *["final_state"] * case.states, *given]


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave against float64.

    Each element is bounded by the same sum of absolute values (`sizes`), and each tensor as a whole
    by what independent roundings add up to.
    """
    for name, got in zip(names(case), results, strict=True):
        assert got.dtype == dtype_of(name, inputs), name
        assert got.is_contiguous(), name
    for got, (name, (exact, bound)) in zip(results, judged(case, inputs).items(), strict=True):
        assert_close(got, exact, bound, name)
        check_rms(name, got, exact, case)


def dtype_of(name: str, inputs) -> torch.dtype:
    """Of a result or a gradient."""
    like = dict(zip((f"d{n}" for n in INPUTS), inputs, strict=False))
    return {"y": inputs[0], "final_state": inputs[2], **like}[name].dtype


def judged(case: Case, inputs, function=parallel) -> dict[str, tuple[Tensor, Tensor]]:
    """Of each result and gradient the reference, by a function as `parallel`, and its bound."""
    size, exponents, found = sizes(case, inputs), error_of_exponents(case, inputs), {}
    for name, exact in zip(names(case), reference(case, inputs, function), strict=True):
        dtype, length = dtype_of(name, inputs), case.length
        length *= case.heads if name in ("dB", "dC") else 1
        bound = tolerance.linear_attention(exact, size[name], case.dtype, length)
        bound = bound + exponents * size[name]
        if dtype != case.dtype:  # rounded to their own dtype alone
            bound = bound + 2 * tolerance.unit(dtype) * exact.abs()
        found[name] = exact, bound
    return found


def error_of_exponents(case: Case, inputs) -> float:
    """Relative, of a decay: of sums over a chunk, and in the reference over all tokens."""
    dt, A, bias = (None if t is None else t.double() for t in (inputs[1], inputs[2], inputs[7]))
    decay = (steps_of(case, dt, bias) * A).abs().nan_to_num()
    unit = tolerance.unit(FP64 if case.dtype == FP64 else FP32)
    of_chunk = min(case.length, CHUNK) * decay.max()
    return float(4 * unit * of_chunk + 4 * tolerance.unit(FP64) * decay.sum(-2).max())


def sizes(case: Case, inputs) -> dict[str, Tensor]:
    """Of each result, the sum of the absolute values that it is a sum of."""
    if case.ends:
        return {n: t.abs() for n, t in of_sequences(case, inputs, sizes).items()}
    exact = [None if t is None else t.detach().double() for t in inputs]
    x, dt, A, B, C, D, z, bias, initial, dy, d_final = exact
    steps = steps_of(case, dt, bias)
    if z is not None:  # of the gated: y · silu(z), with a rounding of y between
        gate = F.silu(z).abs()
        slope = torch.sigmoid(z) * (1 + z.abs() * (1 - torch.sigmoid(z)))
        dy_inner = dy * gate
    else:
        dy_inner = dy
    leaves = [t if t is None else t.abs().requires_grad_() for t in (steps, x, B, C, initial)]
    weights, *others = leaves
    decay = (steps * A).requires_grad_()
    y, state = attend(decay, weights, *others)
    found = torch.autograd.grad(
        (y, state),
        [decay, *(t for t in leaves if t is not None)],
        (dy_inner.abs(), torch.zeros_like(state) if d_final is None else d_final.abs()),
    )
    d_decay, d_weights, dx, dB, dC, *d_initial = found
    del d_decay  # sums over all that passes a token; ours are differences of sums over all tokens
    with torch.no_grad():
        y_inner = y
        if D is not None:
            of_x = D.abs() if D.dim() == 2 else D.abs()[:, None]
            y_inner = y + of_x * x.abs()
            dx = dx + of_x * dy_inner.abs()
        heads = case.heads // case.groups
        through = weights * d_weights  # Σ |B · dB| of each token and head; as many of |C · dC|
        per_head = 2 * through.sum(1, keepdim=True)
        if initial is not None:
            per_head = per_head + (initial.abs() * d_initial[0]).sum((2, 3)).unsqueeze(1)
            per_head = per_head + (d_final.abs() * state).sum((2, 3)).unsqueeze(1)
        d_log = per_head.expand_as(steps)
        d_steps = d_weights + d_log * A.abs()
        found = {
            "y": y_inner if z is None else y_inner * gate,
            "final_state": state,
            "dx": dx,
            "ddt": d_steps,
            "dA": (d_log * steps.abs()).sum((0, 1)),
            "dB": dB,
            "dC": dC,
            "ddt_bias": d_steps.sum((0, 1)),
        }
        assert heads * case.groups == case.heads
        if D is not None:
            dot = (dy_inner * x).abs()
            found["dD"] = dot.sum((0, 1)) if D.dim() == 2 else dot.sum((0, 1, 3))
        if z is not None:
            found["dz"] = dy.abs() * y_inner * slope
        if initial is not None:
            found["dinitial_state"] = d_initial[0]
    return {name: t.detach() for name, t in found.items()}


def check_rms(name: str, got: Tensor, exact: Tensor, case: Case) -> None:
    """Of independent roundings, each of rms u / √3: three on a path, with the result's own."""
    sums = ("ddt", "dA", "ddt_bias", "dD")  # over all tokens, of both signs
    if case.dtype not in (BF16, FP16) or name in sums or exact.norm() == 0:
        return
    unit = 2 * tolerance.unit(case.dtype)
    error = ((got.double() - exact).norm() / exact.norm()).item()
    assert error <= 1.5 * unit, f"{name}: off by {error:.2e} of its norm, {unit:.2e} is a rounding"
