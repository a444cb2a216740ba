"""The problems on which attention's kernel is judged, on every backend."""

import dataclasses
import itertools
import math

import torch

import thunderkittens
from thunderkittens.testing import assert_close, memory, tolerance

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
SHORT = {FP16: "fp16", BF16: "bf16"}
GROUPS = (1, 4, 8)
LAYOUTS = ("transposed", "packed", "expanded", "offset", "stepped", "odd strides", "odd ones")
COPIED = ("expanded", "offset", "stepped", "odd strides")
REGIMES = ("normal", "peaked", "negative", "mostly zeros", "tiny", "large values")


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of attention.

    Attributes:
        rows: Sq.
        keys: Sk.
        causal: As given to the op.
        group: Query heads of one key head.
        head_dim: 64 or 128.
        dtype: Of q, k and v.
        key_heads: Hk.
        batch: B.
        layout: How q, k and v lie in memory: contiguous, or one of LAYOUTS.
        regime: What values they have, one of REGIMES.
        scale: As given to the op.
    """

    rows: int
    keys: int
    causal: bool = False
    group: int = 1
    head_dim: int = 64
    dtype: torch.dtype = BF16
    key_heads: int = 1
    batch: int = 1
    layout: str = "contiguous"
    regime: str = "normal"
    scale: float | None = None

    def __str__(self) -> str:
        parts = [f"{self.rows}x{self.keys}", SHORT[self.dtype], f"d{self.head_dim}"]
        parts += ["causal"] if self.causal else []
        for name in ("group", "key_heads", "batch", "layout", "regime", "scale"):
            if getattr(self, name) != Case.__dataclass_fields__[name].default:
                parts.append(f"{name}={getattr(self, name)}")
        return ",".join(parts).replace(" ", "_")


def rotate(pairs) -> list[Case]:
    """Full and causal at each (rows, keys); groups, head dimensions and dtypes take turns."""
    pairs = list(pairs)
    kinds = itertools.cycle(itertools.product(GROUPS, (64, 128), (BF16, FP16)))
    return [
        Case(rows, keys, causal, *next(kinds)) for causal in (False, True) for rows, keys in pairs
    ]


def lay_out(tensors: list[torch.Tensor], layout: str) -> list[torch.Tensor]:
    """q, k and v [B, S, H, D] with the same values and other strides."""
    if layout == "transposed":  # slices of [B, H, S, D]
        return [t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors]
    if layout == "packed":  # slices of [B, S, Hq + 2 Hk, D]; needs as many rows as keys
        heads = [t.shape[2] for t in tensors]
        return list(torch.cat(tensors, 2).split(heads, 2))
    if layout == "expanded":  # one batch of keys and values for all
        return [tensors[0], *(t[:1].expand_as(t) for t in tensors[1:])]
    if layout == "offset":
        return [t.new_zeros(t.numel() + 1)[1:].view(t.shape).copy_(t) for t in tensors]
    if layout == "stepped":
        return [t.repeat_interleave(2, -1)[..., ::2] for t in tensors]
    if layout == "odd strides":
        return [torch.cat([t, t[..., :3]], -1)[..., : t.shape[-1]] for t in tensors]
    if layout == "odd ones":  # strides of dimensions of size 1, which mean nothing
        return [
            t.as_strided(
                t.shape, [7 if s == 1 else d for s, d in zip(t.shape, t.stride(), strict=True)]
            )
            for t in tensors
        ]
    return tensors


def values(case: Case, device: str) -> list[torch.Tensor]:
    """q, k and v in the case's regime, contiguous, before rounding."""
    heads = case.key_heads * case.group
    sizes = ((case.rows, heads), (case.keys, case.key_heads), (case.keys, case.key_heads))
    q, k, v = (
        torch.randn(case.batch, s, h, case.head_dim, dtype=FP32, device=device) for s, h in sizes
    )
    if case.regime == "peaked":  # weights of nearly one key
        q = q * 20
    elif case.regime == "negative":  # scores around −80000 (−113000 at 128)
        q, k = 100 + q, -100 + k
    elif case.regime == "mostly zeros":
        q, k, v = (t * (torch.rand_like(t) > 0.75) for t in (q, k, v))
    elif case.regime == "tiny":
        q, k, v = (t * 1e-3 for t in (q, k, v))
    elif case.regime == "large values":
        v = v.sign() * 6e4
    return [q, k, v]


def make(case: Case, device: str = "cpu") -> list[torch.Tensor]:
    """q, k, v of a case."""
    return lay_out([t.to(case.dtype) for t in values(case, device)], case.layout)


def forward(case: Case, q, k, v) -> tuple[torch.Tensor, torch.Tensor]:
    """o and lse, by the backend in force."""
    return thunderkittens.attention(q, k, v, causal=case.causal, scale=case.scale, return_lse=True)


EXAMPLE = Case(230, 600, key_heads=6)  # of `make sim`: 12 tiles, for 4 blocks


def run_case(case: Case, inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """The call of a case, by the backend in force."""
    return forward(case, *inputs)


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave against float64."""
    Reference(case, *inputs).check(*results)


class Reference:
    """attention in float64 on the rounded inputs, with the quantities that its bounds are made of.

    All are [B, Hk, group, Sq, …].
    """

    def __init__(self, case: Case, q, k, v) -> None:
        self.case = case
        q, k, v = q.detach(), k.detach(), v.detach()
        self.scale = 1 / math.sqrt(case.head_dim) if case.scale is None else case.scale
        self.q = self.by_key_head(q)
        self.k, self.v = (t.double().permute(0, 2, 1, 3).unsqueeze(2) for t in (k, v))
        score = self.q @ self.k.transpose(-1, -2) * self.scale
        if case.causal:
            seen = torch.ones(case.rows, case.keys, dtype=torch.bool, device=q.device)
            score = score.masked_fill(~seen.tril(case.keys - case.rows), -math.inf)
        self.lse = score.logsumexp(-1, keepdim=True)
        self.weights = (score - self.lse).nan_to_num(nan=-math.inf).exp()
        self.o = self.weights @ self.v
        self.spread = self.weights @ self.v.abs()
        largest = self.q.abs() @ self.k.abs().transpose(-1, -2) if k.numel() else torch.zeros(1)
        # The bounds allow 8 units of the largest score; a sum of head_dim terms may be off by
        # `accumulation`, in the weight's numerator and in its denominator.
        units = 2 * tolerance.accumulation(case.head_dim) / (8 * tolerance.unit(FP32))
        self.score = units * float(largest.max()) * self.scale

    def by_key_head(self, t):
        """[B, Sq, Hq, …] → [B, Hk, group, Sq, …] in float64."""
        return t.double().transpose(1, 2).unflatten(1, (self.case.key_heads, self.case.group))

    def as_output(self, t):
        """The inverse."""
        return t.flatten(1, 2).transpose(1, 2)

    def check(self, o, lse=None) -> None:
        """Asserts o and lse, element by element and row by row."""
        want, spread = self.as_output(self.o), self.as_output(self.spread)
        assert (o.dtype, o.is_contiguous()) == (self.case.dtype, True)
        bound = tolerance.attention(want, spread, o.dtype, self.case.keys, self.score)
        assert_close(o, want, bound, "o")
        if lse is None:
            return
        assert (lse.dtype, lse.is_contiguous()) == (FP32, True)
        want = self.lse.flatten(1, 2).squeeze(-1)
        size = want.abs().nan_to_num(posinf=0.0)
        assert_close(lse, want, 1e-5 + 1e-6 * size + 8 * tolerance.unit(FP32) * self.score, "lse")

    def check_gradients(self, dout, dlse, dq, dk, dv) -> None:
        """Asserts the gradients.

        What rounds to 16 bits on the way: o (in Σ do ∘ o), the weights, ds, a query head's own part
        of dk and dv, and the result: two units each of S, the same sums over absolute values.
        """
        dout, o = self.by_key_head(dout), self.o
        dp, size = dout @ self.v.transpose(-1, -2), dout.abs() @ self.v.abs().transpose(-1, -2)
        delta = (dout * o).sum(-1, keepdim=True)
        delta_size = (dout.abs() * o.abs()).sum(-1, keepdim=True)
        if dlse is not None:
            dlse = dlse.double().unflatten(1, (self.case.key_heads, self.case.group)).unsqueeze(-1)
            delta, delta_size = delta - dlse, delta_size + dlse.abs()
        ds = self.weights * (dp - delta) * self.scale
        ds_size = self.weights * (size + delta_size) * self.scale
        wants = (
            (dq, self.as_output(ds @ self.k), self.as_output(ds_size @ self.k.abs()), "dq"),
            (dk, *self.over_group(ds, ds_size, self.q), "dk"),
            (dv, *self.over_group(self.weights, self.weights, dout), "dv"),
        )
        unit, length = tolerance.unit(self.case.dtype), max(self.case.rows, self.case.keys)
        slack = tolerance.accumulation(length * self.case.group)
        slack += 8 * tolerance.unit(FP32) * (4 + self.score)
        for got, want, total, name in wants:
            bound = (6 * unit + slack) * total + 2 * unit * want.abs()
            assert got.dtype == self.case.dtype, name
            assert got.is_contiguous(), name
            assert_close(got, want, bound + tolerance.floor(self.case.dtype), name)

    def over_group(self, left, size, right):
        """Σ leftᵀ right over the query heads of a key head, and that of absolute values."""
        total = (left.transpose(-1, -2) @ right).sum(2).transpose(1, 2)
        return total, (size.transpose(-1, -2) @ right.abs()).sum(2).transpose(1, 2)


def gradients(case: Case, q, k, v, dout, dlse=None) -> list[torch.Tensor]:
    """dq, dk, dv by the backend in force."""
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    if dlse is None:
        o = thunderkittens.attention(*leaves, causal=case.causal, scale=case.scale)
        return list(torch.autograd.grad(o, leaves, dout))
    o, lse = forward(case, *leaves)
    return list(torch.autograd.grad((o, lse), leaves, (dout, dlse)))


def check_gradients(case: Case, device: str, with_lse: bool) -> None:
    """Asserts the gradients of a case with a random incoming one."""
    q, k, v = make(case, device)
    shape = (case.batch, case.rows, case.key_heads * case.group, case.head_dim)
    dout = torch.randn(shape, dtype=FP32, device=device).to(case.dtype)
    dlse = torch.randn(shape[0], shape[2], shape[1], device=device) if with_lse else None
    got = gradients(case, q, k, v, dout, dlse)
    Reference(case, q, k, v).check_gradients(dout, dlse, *got)


def check_not_finite(case: Case, device: str) -> None:
    """Asserts that a NaN in q spoils its row alone, and one in k the rows that see it."""
    q, k, v = make(case, device)
    want, want_lse = forward(case, q, k, v)
    row, key = case.rows // 2, case.keys // 3
    spoilt = q.clone()
    spoilt[0, row, 0, 5] = math.nan
    o, lse = forward(case, spoilt, k, v)
    assert o[0, row, 0].isnan().all() and lse[0, 0, row].isnan()
    o[0, row, 0], lse[0, 0, row] = want[0, row, 0], want_lse[0, 0, row]
    assert memory.bits_equal(o, want) and memory.bits_equal(lse, want_lse)

    spoilt = k.clone()
    spoilt[0, key, 0, 7] = math.nan
    o, lse = forward(case, q, spoilt, v)
    first = max(0, key - (case.keys - case.rows)) if case.causal else 0
    seeing = (slice(0, 1), slice(first, None), slice(0, case.group))
    assert o[seeing].isnan().all()
    assert lse.transpose(1, 2)[seeing].isnan().all()
    o[seeing], lse.transpose(1, 2)[seeing] = want[seeing], want_lse.transpose(1, 2)[seeing]
    assert memory.bits_equal(o, want) and memory.bits_equal(lse, want_lse)


def check_layout(case: Case, device: str) -> None:
    """Asserts that strides change no bit."""
    contiguous = dataclasses.replace(case, layout="contiguous")
    tensors = make(contiguous, device)
    if case.layout == "expanded":
        tensors = [tensors[0], *(t[:1].expand_as(t).contiguous() for t in tensors[1:])]
    want = forward(case, *tensors)
    got = forward(case, *lay_out(tensors, case.layout))
    assert all(map(memory.bits_equal, got, want))
