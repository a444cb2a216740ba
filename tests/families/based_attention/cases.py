"""The problems on which based_attention is judged, on every backend: one list for all tests."""

import dataclasses
import itertools

import torch
from torch import Tensor

import thunderkittens
from tests.tools import kernel_kinds
from thunderkittens.testing import assert_close, tolerance

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
SHORT = {FP32: "fp32", FP16: "fp16", BF16: "bf16", FP64: "fp64"}
CHUNK = 64  # tokens

LAYOUTS = ("fused", "transposed", "offset", "stepped", "expanded")


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of based_attention, and its gradients.

    Attributes:
        batch: B.
        length: S.
        heads: H.
        key_width: D.
        value_width: V.
        dtype: Of q, k and v.
        normalize: As given to the op.
        states: Whether there is an initial state, and a final one is asked for.
        scale: As given to the op.
        spread: q and k are normally distributed with this standard deviation.
        layout: How q, k, v and the gradient of o lie in memory, "contiguous" or one of LAYOUTS.
        generic: Whether `call` takes the generic kernel.
    """

    batch: int = 1
    length: int = 130
    heads: int = 2
    key_width: int = 16
    value_width: int = 64
    dtype: torch.dtype = BF16
    normalize: bool = True
    states: bool = True
    scale: float | None = None
    spread: float = 1.0
    layout: str = "contiguous"
    generic: bool = False

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
    some = [(16, 64), (8, 64), (16, 8), (8, 24)]
    return [
        Case(length=100, key_width=d, value_width=v, dtype=t)
        for (d, v), t in itertools.product(some, dtypes)
    ]


def wide(dtypes=(BF16, FP16)) -> list[Case]:
    """Values for several blocks; the kernel has no gradients of these."""
    return [
        Case(length=100, value_width=v, dtype=t, normalize=v == 72)
        for v, t in itertools.product((72, 128), dtypes)
    ]


def options(dtype=BF16) -> list[Case]:
    """Normalised or not, states, scales, sizes of the scores."""
    switches = itertools.product((False, True), repeat=2)
    return [
        *(Case(normalize=n, states=s, dtype=dtype) for n, s in switches),
        *(Case(scale=x, dtype=dtype) for x in (1.0, 0.3)),
        *(Case(spread=x, dtype=dtype, normalize=n) for x in (0.01, 6.0) for n in (False, True)),
        Case(3, 5, 4, dtype=dtype),
    ]


def layouts(dtype=BF16) -> list[Case]:
    """Every way that the tensors may lie in memory."""
    return [Case(2, 67, layout=x, dtype=dtype) for x in LAYOUTS]


EXAMPLE = Case(1, 130, 2)  # of `make sim`
SMALL = "--length 66 --heads 1"  # options of `make sim`, for its tests
# What tests/tools/budgets.py measures.
BUDGETS = {
    "based_attention": Case(1, 256, 1),
    "based_attention, generic kernel": Case(1, 256, 1, generic=True),
}


def lay_out(t: Tensor, layout: str) -> Tensor:
    """The same values (of the first token alone when expanded) with other strides."""
    batch, length, heads, width = t.shape
    if layout == "expanded":
        return t[:, :1].expand_as(t)
    if layout == "transposed":
        return t.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "fused":  # columns of a projection
        return torch.cat([t, t, t], -1)[..., width : 2 * width]
    if layout == "offset":
        return t.new_zeros(t.numel() + 1)[1:].view(t.shape).copy_(t)
    if layout == "stepped":
        return t.new_zeros(batch, length, heads, 2 * width)[..., ::2].copy_(t)
    return t


def feature_count(width: int) -> int:
    return 1 + width + width * (width + 1) // 2


def make(case: Case, device: str = "cpu") -> tuple[Tensor | None, ...]:
    """q, k, v, the initial state and sums, and the gradients of o, final state and final sums."""
    exact = FP64 if case.dtype == FP64 else FP32

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device=device)

    tokens = (case.batch, case.length, case.heads)
    q, k = (case.spread * normal(*tokens, case.key_width) for _ in "qk")
    v, d_o = (normal(*tokens, case.value_width) for _ in "vo")
    q, k, v, d_o = (lay_out(t.to(case.dtype), case.layout) for t in (q, k, v, d_o))
    state = sums = d_state = d_sums = None
    if case.states:
        rows = (case.batch, case.heads, feature_count(case.key_width))
        # Of eleven tokens, so that the sums are some that can be.
        before = thunderkittens.based_features(normal(*rows[:2], 11, case.key_width).to(exact))
        state = before.mT @ normal(*rows[:2], 11, case.value_width).to(exact)
        d_state = normal(*rows, case.value_width).to(exact)
        if case.normalize:
            sums, d_sums = before.sum(2), normal(*rows).to(exact)
    return q, k, v, state, sums, d_o, d_state, d_sums


def call(case: Case, q, k, v, state, sums) -> list[Tensor]:
    """o, and with states the final ones, by the backend in force."""
    given = {"scale": case.scale, "normalize": case.normalize}
    with kernel_kinds.taking(case.generic):
        if not case.states:
            return [thunderkittens.based_attention(q, k, v, **given)]
        o, final = thunderkittens.based_attention(
            q,
            k,
            v,
            **given,
            initial_state=(state, sums) if case.normalize else state,
            output_final_state=True,
        )
    return [o, *final] if case.normalize else [o, final]


def run_case(case: Case, inputs) -> list[Tensor]:
    """o, with states the final ones, and the gradients of all inputs, by the backend in force."""
    leaves = [None if t is None else t.detach().requires_grad_() for t in inputs[:5]]
    outputs = call(case, *leaves)
    gradients = torch.autograd.grad(
        outputs, [t for t in leaves if t is not None], [t for t in inputs[5:] if t is not None]
    )
    return [*(t.detach() for t in outputs), *gradients]


def names(case: Case) -> list[str]:
    """Of what `run_case` gives."""
    states = ["state", "sums"][: 0 if not case.states else 2 if case.normalize else 1]
    return [
        "o",
        *(f"final_{name}" for name in states),
        *("dq", "dk", "dv"),
        *(f"dinitial_{name}" for name in states),
    ]


def recurrence(q, k, v, state, scale) -> tuple[Tensor, Tensor]:
    """Σ A(i, j) v(j) and the final state, token by token by the features: the definition."""
    of_q, of_k = (thunderkittens.based_features(t, scale=scale) for t in (q, k))
    outputs = []
    for t in range(q.shape[1]):
        state = state + of_k[:, t, :, :, None] * v[:, t, :, None]
        outputs.append(torch.einsum("bhf,bhfv->bhv", of_q[:, t], state))
    return torch.stack(outputs, 1) if outputs else torch.zeros_like(v), state


def parallel(q, k, v, state, scale) -> tuple[Tensor, Tensor]:
    """The same by the sum over all earlier tokens, which is quicker."""
    s = scale * torch.einsum("bihd,bjhd->bhij", q, k)
    o = torch.einsum("bhij,bjhv->bihv", (1 + s + s * s / 2).tril(), v)
    of_q, of_k = (thunderkittens.based_features(t, scale=scale) for t in (q, k))
    o = o + torch.einsum("bihf,bhfv->bihv", of_q, state)
    return o, state + torch.einsum("bjhf,bjhv->bhfv", of_k, v)


def augmented(case: Case, q, k, v, state, sums) -> list[Tensor]:
    """q, k, v and the state with a column more for the denominator; in float64."""
    q, k, v = (t.double() for t in (q, k, v))
    rows = (case.batch, case.heads, feature_count(case.key_width))
    state = q.new_zeros(*rows, case.value_width) if state is None else state.double()
    if not case.normalize:
        return [q, k, v, state]
    sums = q.new_zeros(rows) if sums is None else sums.double()
    return [
        q,
        k,
        torch.cat([v, torch.ones_like(v[..., :1])], -1),
        torch.cat([state, sums[..., None]], -1),
    ]


def scale_of(case: Case) -> float:
    return case.key_width**-0.5 if case.scale is None else case.scale


def of_augmented(case: Case, o, state, dq, dk, dv, d_state) -> list[Tensor]:
    """What `run_case` gives, of results with the column more."""
    width = case.value_width
    states = [(t[..., :width], t[..., width]) if case.normalize else (t,) for t in (state, d_state)]
    if not case.states:
        states = [(), ()]
    return [o, *states[0], dq, dk, dv[..., :width], *states[1]]


def reference(case: Case, inputs, function=parallel) -> tuple[list[Tensor], list[Tensor]]:
    """What `run_case` should give, in float64, and the same sums of absolute values."""
    given = augmented(case, *inputs[:5])
    leaves = [t.detach().requires_grad_() for t in given]
    _, _, _, _, _, d_o, d_state, d_sums = inputs
    sums, state = function(*leaves, scale_of(case))
    o, denominator = sums, torch.ones_like(sums[..., :1])
    if case.normalize:
        denominator = sums[..., -1:] + 1e-12
        o = sums[..., :-1] / denominator
    d_o = d_o.double()
    d_final = torch.zeros_like(state)
    if case.states:
        d_final = d_state.double()
        if case.normalize:
            d_final = torch.cat([d_final, d_sums.double()[..., None]], -1)
    want = of_augmented(
        case,
        *(o.detach(), state.detach()),
        *torch.autograd.grad((o, state), leaves, (d_o, d_final)),
    )

    return want, sizes(case, given, denominator.detach(), (d_o, d_final), function)


def sizes(case: Case, given, denominator, incoming, function=parallel, least=0.0) -> list[Tensor]:
    """The sums of absolute values that results are, of factors that are at least `least`.

    Of augmented inputs, the denominators that they have, and the gradients of o and of the state.
    """
    # A is a polynomial whose coefficients are positive: of absolute values, it and its gradients
    # are the sums of absolute values. The gradients of the quotient are those of its two parts.
    d_o, d_final = (t.abs() for t in incoming)
    leaves = [t.detach().abs().clamp(min=least).requires_grad_() for t in given]
    sums, state = function(*leaves, scale_of(case))
    size = sums.detach() / denominator
    d_sums = d_o / denominator
    if case.normalize:
        size = size[..., :-1]
        d_sums = torch.cat([d_sums, (d_sums * size).sum(-1, keepdim=True)], -1)
    arriving = (d_sums.clamp(min=least), d_final.clamp(min=least))
    return of_augmented(
        case,
        *(size, state.detach()),
        *torch.autograd.grad((sums, state), leaves, arriving),
    )


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave, or its first results, against float64.

    Each element is bounded by the same sum of absolute values, and each tensor as a whole by what
    independent roundings add up to.
    """
    want, sizes = reference(case, inputs)
    exact_dtype = FP64 if case.dtype == FP64 else FP32
    for name, got, exact, size in zip(names(case), results, want, sizes, strict=False):
        assert got.dtype == (case.dtype if name in ("o", "dq", "dk", "dv") else exact_dtype), name
        assert got.is_contiguous(), name
        bound = tolerance.based_attention(exact, size, case.dtype, case.length)
        assert_close(got, exact, bound, name)
        check_rms(name, got, exact, case)


def check_rms(name: str, got: Tensor, exact: Tensor, case: Case) -> None:
    """Of independent roundings, each of rms u / √3: three on a path, with the result's own."""
    if case.dtype not in (BF16, FP16) or case.layout == "expanded":  # whose tokens are all the same
        return
    unit = 2 * tolerance.unit(case.dtype)
    error = ((got.double() - exact).norm() / exact.norm()).item()
    assert error <= 1.2 * unit, f"{name}: off by {error:.2e} of its norm, {unit:.2e} is a rounding"
