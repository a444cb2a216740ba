"""The problems on which linear_attention is judged, on every backend: one list for all tests."""

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
DECAYS = ("none", "head", "token")


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of linear_attention, and its gradients.

    Attributes:
        batch: B.
        length: S.
        heads: H.
        key_heads: Hk.
        key_width: K.
        value_width: V.
        dtype: Of q, k and v.
        decay: One of DECAYS: of what there is a number.
        strength: The logarithms of the decays are between minus this and 0; all are this where it
            is negative.
        states: Whether there is an initial state, and a final one is asked for.
        scale: As given to the op.
        layout: How q, k, v and the gradient of o lie in memory, "contiguous" or one of LAYOUTS.
        ends: Where sequences packed into the one batch start and end, from 0 to S; or none.
        generic: Whether `run_case` takes the generic kernel.
    """

    batch: int = 1
    length: int = 130
    heads: int = 2
    key_heads: int = 2
    key_width: int = 64
    value_width: int = 64
    dtype: torch.dtype = BF16
    decay: str = "token"
    strength: float = 0.2
    states: bool = True
    scale: float | None = None
    layout: str = "contiguous"
    ends: tuple[int, ...] = ()
    generic: bool = False

    @property
    def sequences(self) -> int:
        """Of which each has a state."""
        return len(self.ends) - 1 if self.ends else self.batch

    @property
    def longest(self) -> int:
        """Tokens of a sequence."""
        return max(b - a for a, b in itertools.pairwise(self.ends or (0, self.length)))

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
    return [Case(length=n, heads=1, key_heads=1, dtype=dtype) for n in ends]


def widths(dtypes=(BF16, FP16)) -> list[Case]:
    """Each configuration of the kernel, and widths below it."""
    some = [(64, 64), (64, 128), (128, 64), (128, 128), (8, 8), (16, 64), (40, 72), (96, 24)]
    return [
        Case(length=70, key_width=k, value_width=v, dtype=t, heads=2, key_heads=1)
        for (k, v), t in itertools.product(some, dtypes)
    ]


def options(dtype=BF16) -> list[Case]:
    """Kinds of decay and how strong they are; states, scales, heads that share keys."""
    return [
        *(Case(decay=d, states=s, dtype=dtype) for d in DECAYS for s in (False, True)),
        *(Case(strength=x, dtype=dtype) for x in (-1e-3, -1.0, -5.0, -80.0, 5.0, 80.0)),
        *(Case(scale=x, dtype=dtype) for x in (1.0, -0.3)),
        Case(2, 90, 6, 2, dtype=dtype),
        Case(3, 5, 4, 1, decay="head", dtype=dtype),
    ]


def layouts(dtype=BF16) -> list[Case]:
    """Every way that the tensors may lie in memory."""
    return [Case(2, 67, layout=x, dtype=dtype) for x in LAYOUTS]


def packed(dtype=BF16) -> list[Case]:
    """Sequences one behind the other: of no token, of one, around the ends of chunks."""
    return [
        Case(length=200, ends=(0, 63, 63, 64, 200), key_heads=1, dtype=dtype),
        Case(length=130, ends=(0, 130), decay="head", dtype=dtype),
        Case(length=195, ends=(0, 65, 193, 195), decay="none", states=False, dtype=dtype),
        Case(length=70, ends=(0, 0, 70), layout="fused", dtype=dtype),
        Case(length=70, ends=(0, 1, 70), layout="transposed", dtype=dtype),
    ]


EXAMPLE = Case(1, 130, 2, 1, 64, 64)  # of `make sim`
SMALL = "--length 66 --heads 1 --key-heads 1"  # options of `make sim`, for its tests
# What tests/tools/budgets.py measures.
BUDGETS = {
    "linear_attention": Case(1, 256, 1, 1, 64, 64),
    "linear_attention, 128 wide": Case(1, 256, 1, 1, 128, 128),
    "linear_attention, generic kernel": Case(1, 256, 1, 1, 64, 64, generic=True),
    "linear_attention, generic kernel, 128 wide": Case(1, 256, 1, 1, 128, 128, generic=True),
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


def make(case: Case, device: str = "cpu") -> tuple[Tensor | None, ...]:
    """q, k, v, log_decay, initial_state, and the gradients of o and of the final state."""
    exact = FP64 if case.dtype == FP64 else FP32

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device=device)

    tokens = (case.batch, case.length)
    q, k = (normal(*tokens, case.key_heads, case.key_width) for _ in "qk")
    v, d_o = (normal(*tokens, case.heads, case.value_width) for _ in "vo")
    tensors = [lay_out(t.to(case.dtype), case.layout) for t in (q, k, v)]
    decay = None
    if case.decay != "none":
        shape = (case.heads,) if case.decay == "head" else (*tokens, case.heads)
        decay = -case.strength * torch.rand(shape, device=device)
        if case.strength < 0:
            decay = torch.full(shape, case.strength, device=device)
        decay = decay.to(exact)
    state = (case.sequences, case.heads, case.key_width, case.value_width)
    initial, d_final = (normal(*state).to(exact) if case.states else None for _ in "if")
    d_o = lay_out(d_o.to(case.dtype), case.layout)
    if case.ends:
        *tensors, d_o = (t.squeeze(0) for t in (*tensors, d_o))
        decay = decay.squeeze(0) if case.decay == "token" else decay
    return *tensors, decay, initial, d_o, d_final


def run_case(case: Case, inputs) -> list[Tensor]:
    """o, with states the final one, and the gradients of all inputs, by the backend in force."""
    *given, d_o, d_final = inputs
    leaves = [None if t is None else t.detach().requires_grad_() for t in given]
    q, k, v, decay, initial = leaves
    with kernel_kinds.taking(case.generic):
        outputs = thunderkittens.linear_attention(
            q,
            k,
            v,
            log_decay=decay,
            scale=case.scale,
            initial_state=initial,
            output_final_state=case.states,
            cu_seqlens=torch.tensor(case.ends, dtype=torch.int32, device=q.device)
            if case.ends
            else None,
        )
    outputs = outputs if case.states else (outputs,)
    gradients = torch.autograd.grad(
        outputs, [t for t in leaves if t is not None], [t for t in (d_o, d_final) if t is not None]
    )
    return [*(t.detach() for t in outputs), *gradients]


def recurrence(q, k, v, decay, initial, scale) -> tuple[Tensor, Tensor]:
    """o and the final state, token by token: the definition. Of tensors of one dtype."""
    batch, length, heads, width = v.shape
    q, k = (t.repeat_interleave(heads // t.shape[2], 2) for t in (q, k))
    state = initial if initial is not None else q.new_zeros(batch, heads, q.shape[-1], width)
    outputs = []
    for t in range(length):
        if decay is not None:
            of_token = decay if decay.dim() == 1 else decay[:, t]
            state = of_token.exp()[..., None, None] * state
        state = state + k[:, t, :, :, None] * v[:, t, :, None]
        outputs.append(scale * torch.einsum("bhk,bhkv->bhv", q[:, t], state))
    return torch.stack(outputs, 1) if outputs else torch.zeros_like(v), state


def parallel(q, k, v, decay, initial, scale) -> tuple[Tensor, Tensor]:
    """The same by the sum over all earlier tokens, which is quicker; L is the sum of the decays."""
    batch, length, heads, _ = v.shape
    q, k, v = (t.repeat_interleave(heads // t.shape[2], 2).transpose(1, 2) for t in (q, k, v))
    decay = q.new_zeros(heads) if decay is None else decay
    if length == 0:
        empty = q.new_zeros(batch, heads, q.shape[-1], v.shape[-1])
        return v.transpose(1, 2), empty if initial is None else initial
    sums = decay.expand(batch, length, heads).cumsum(1).transpose(1, 2)  # [B, H, S]
    hidden = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    exponents = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).masked_fill(hidden, -torch.inf)
    o = (q @ k.mT * exponents.exp()) @ v
    to_end = sums[..., -1:] - sums
    state = (k * to_end.exp().unsqueeze(-1)).mT @ v
    if initial is not None:
        o = o + (q @ initial) * sums.exp().unsqueeze(-1)
        state = state + initial * sums[..., -1].exp()[..., None, None]
    return scale * o.transpose(1, 2), state


def of_sequences(case: Case, given, scale: float, function) -> tuple[Tensor, Tensor]:
    """`function` of q, k, v, log_decay and initial_state, of each packed sequence by itself."""
    if not case.ends:
        return function(*given, scale)
    *tensors, decay, initial = given
    results = []
    for i, (start, end) in enumerate(itertools.pairwise(case.ends)):
        part = [t[None, start:end] for t in tensors]
        g = decay[None, start:end] if case.decay == "token" else decay
        s = None if initial is None else initial[i : i + 1]
        results.append(function(*part, g, s, scale))
    o, states = zip(*results, strict=True)
    return torch.cat(o, 1).squeeze(0), torch.cat(states)


def reference(case: Case, inputs, function) -> list[Tensor]:
    """What `run_case` should give, in float64, by a function such as `recurrence`."""
    *given, d_o, d_final = inputs
    leaves = [None if t is None else t.detach().double().requires_grad_() for t in given]
    scale = case.key_width**-0.5 if case.scale is None else case.scale
    outputs = of_sequences(case, leaves, scale, function)[: 2 if case.states else 1]
    gradients = torch.autograd.grad(
        outputs,
        [t for t in leaves if t is not None],
        [t.double() for t in (d_o, d_final) if t is not None],
    )
    return [*(t.detach() for t in outputs), *gradients]


def names(case: Case) -> list[str]:
    """Of what `run_case` gives."""
    return [
        "o",
        *["final_state"] * case.states,
        "dq",
        "dk",
        "dv",
        *["dlog_decay"] * (case.decay != "none"),
        *["dinitial_state"] * case.states,
    ]


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave against float64.

    Each element is bounded by the same sum of absolute values, and each tensor as a whole by what
    independent roundings add up to.
    """
    want, length = reference(case, inputs, parallel), case.longest
    sizes = dict(zip(names(case), reference(*magnitudes(case, inputs), parallel), strict=True))
    exact_dtype = FP64 if case.dtype == FP64 else FP32
    for name, got, exact in zip(names(case), results, want, strict=True):
        assert got.dtype == (case.dtype if name in ("o", "dq", "dk", "dv") else exact_dtype), name
        assert got.is_contiguous(), name
        size = sizes[name] if name != "dlog_decay" else decay_sizes(case, inputs, sizes)
        bound = tolerance.linear_attention(exact, size, case.dtype, length)
        assert_close(got, exact, bound, name)
        check_rms(name, got, exact, case)


def magnitudes(case: Case, inputs) -> tuple[Case, list[Tensor | None]]:
    """The same call of absolute values; the decays are those that they are."""
    values = [t if t is None or i == 3 else t.double().abs() for i, t in enumerate(inputs)]
    return dataclasses.replace(case, scale=None if case.scale is None else abs(case.scale)), values


def error_of_exponents(case: Case, inputs) -> float:
    """Relative, of a decay: of the sums of log_decay over a chunk, and their differences."""
    if case.decay == "none":
        return 0.0
    of_chunk = min(case.length, CHUNK) * inputs[3].double().abs().max()
    return float(4 * tolerance.unit(FP64 if case.dtype == FP64 else FP32) * of_chunk)


def decay_sizes(case: Case, inputs, sizes: dict[str, Tensor]) -> Tensor:
    """What dlog_decay is a difference of: sums of |q| · dq and |k| · dk over a sequence's tokens.

    Of heads that share keys, over all of them; and what the initial state adds.
    """
    q, k, _, _, initial, *_ = inputs
    both = (q.double().abs() * sizes["dq"] + k.double().abs() * sizes["dk"]).sum(-1)
    of_tokens = both.repeat_interleave(case.heads // case.key_heads, -1)  # [B, S, H], or [T, H]
    states = torch.zeros(case.sequences, case.heads).to(both)
    if initial is not None:
        states = (initial.double().abs() * sizes["dinitial_state"]).sum((2, 3))
    for i, (start, end) in enumerate(itertools.pairwise(case.ends or (0, case.length))):
        part = of_tokens[..., start:end, :]
        of_state = states[i] if case.ends else states.unsqueeze(1)
        part.copy_(part.sum(-2, keepdim=True) + of_state)
    return of_tokens if case.decay == "token" else of_tokens.sum(-2).view(-1, case.heads).sum(0)


def check_rms(name: str, got: Tensor, exact: Tensor, case: Case) -> None:
    """Of independent roundings, each of rms u / √3: three on a path, with the result's own."""
    if case.dtype not in (BF16, FP16) or name == "dlog_decay" or exact.norm() == 0:
        return
    unit = 2 * tolerance.unit(case.dtype)
    error = ((got.double() - exact).norm() / exact.norm()).item()
    assert error <= 1.2 * unit, f"{name}: off by {error:.2e} of its norm, {unit:.2e} is a rounding"
