"""The problems on which attention's kernel is judged, on every backend."""

import contextlib
import dataclasses
import itertools
import math
from random import Random

import torch

import thunderkittens
from tests.families.attention.layouts import LAYOUTS, lay_out
from tests.families.attention.reference import Reference
from tests.tools import kernel_kinds
from thunderkittens.testing import memory

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
SHORT = {FP64: "fp64", FP32: "fp32", FP16: "fp16", BF16: "bf16"}
GROUPS = (1, 4, 8)
REGIMES = ("normal", "peaked", "negative", "mostly zeros", "tiny", "large values")
# 0 to 2, and around the ends of tiles of 64, 128 and 192 rows or keys.
EDGES = (0, 1, 2, *(n + d for n in (64, 128, 192, 256, 320, 384) for d in (-1, 0, 1)))


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of attention.

    Attributes:
        rows: Sq.
        keys: Sk.
        causal: As given to the op.
        group: Query heads of one key head.
        head_dim: D.
        dtype: Of q, k and v.
        key_heads: Hk.
        batch: B.
        layout: How q, k and v lie in memory: contiguous, or one of layouts.LAYOUTS.
        regime: What values they have, one of REGIMES.
        scale: As given to the op.
        value_dim: Dv; None for D.
        window_left: As given to the op.
        window_right: As given to the op.
        softcap: As given to the op.
        sinks: Their dtype; None for none.
        cu_seqlens_q: Of packed sequences, whose rows and keys are then those of all together, and
            batch is 1; empty for none.
        cu_seqlens_k: The same of keys.
        seqused_k: As given to the op, of each batch; empty for none.
        leftpad_k: The same.
        generic: Whether `run_case` takes the generic kernels.
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
    value_dim: int | None = None
    window_left: int | None = None
    window_right: int | None = None
    softcap: float = 0.0
    sinks: torch.dtype | None = None
    cu_seqlens_q: tuple[int, ...] = ()
    cu_seqlens_k: tuple[int, ...] = ()
    seqused_k: tuple[int, ...] = ()
    leftpad_k: tuple[int, ...] = ()
    generic: bool = False

    def __str__(self) -> str:
        parts = [f"{self.rows}x{self.keys}", SHORT[self.dtype], f"d{self.head_dim}"]
        parts += ["causal"] if self.causal else []
        named = ("rows", "keys", "dtype", "head_dim", "causal")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in named and value != field.default:
                value = SHORT[value] if field.name == "sinks" else value
                value = "-".join(map(str, value)) if isinstance(value, tuple) else value
                parts.append(f"{field.name}={value}")
        return ",".join(parts).replace(" ", "_")

    @property
    def heads(self) -> int:
        """Hq."""
        return self.key_heads * self.group

    @property
    def packed(self) -> bool:
        """Whether q, k and v are [total, heads, D]."""
        return bool(self.cu_seqlens_q)

    @property
    def values(self) -> int:
        """Dv."""
        return self.head_dim if self.value_dim is None else self.value_dim

    def sequences(self) -> list[tuple[slice, slice]]:
        """The rows and keys of each sequence; of a call that is not packed, all."""
        if not self.packed:
            return [(slice(0, self.rows), slice(0, self.keys))]
        ends = (itertools.pairwise(ends) for ends in (self.cu_seqlens_q, self.cu_seqlens_k))
        return [(slice(*rows), slice(*keys)) for rows, keys in zip(*ends, strict=True)]

    @property
    def bounded(self) -> bool:
        """Whether each batch says which of its keys exist."""
        return bool(self.seqused_k or self.leftpad_k)

    def key_ranges(self) -> list[slice]:
        """The keys of each batch that exist, the op's clamping done."""
        ends = self.seqused_k or (self.keys,) * self.batch
        starts = self.leftpad_k or (0,) * self.batch
        ends = [min(max(end, 0), self.keys) for end in ends]
        pairs = zip(starts, ends, strict=True)
        return [slice(min(max(start, 0), end), end) for start, end in pairs]

    def exist(self) -> torch.Tensor:
        """Which keys of a bounded call do, bool [batch, keys]."""
        exist = torch.zeros(self.batch, self.keys, dtype=torch.bool)
        for batch, keys in enumerate(self.key_ranges()):
            exist[batch, keys] = True
        return exist

    def seen(self) -> torch.Tensor:
        """Which row sees which key, bool [rows, keys]; bounded [batch, 1, 1, rows, keys]."""
        if self.bounded:
            batches = [self._seen([(slice(0, self.rows), keys)]) for keys in self.key_ranges()]
            return torch.stack(batches).view(self.batch, 1, 1, self.rows, self.keys)
        return self._seen(self.sequences())

    def _seen(self, sequences: list[tuple[slice, slice]]) -> torch.Tensor:
        seen = torch.zeros(self.rows, self.keys, dtype=torch.bool)
        right = 0 if self.causal else self.window_right
        for rows, keys in sequences:
            height, width = rows.stop - rows.start, keys.stop - keys.start
            diagonal = torch.arange(height).unsqueeze(1) + width - height
            distance = torch.arange(width) - diagonal
            inside = torch.ones_like(distance, dtype=torch.bool)
            inside &= distance <= (math.inf if right is None else right)
            inside &= distance >= (-math.inf if self.window_left is None else -self.window_left)
            seen[rows, keys] = inside
        return seen


def rotate(pairs) -> list[Case]:
    """Full and causal at each (rows, keys); groups, head dimensions and dtypes take turns."""
    pairs = list(pairs)
    kinds = itertools.cycle(itertools.product(GROUPS, (64, 128), (BF16, FP16)))
    return [
        Case(rows, keys, causal, *next(kinds)) for causal in (False, True) for rows, keys in pairs
    ]


def values(case: Case, device: str) -> list[torch.Tensor]:
    """q, k and v in the case's regime, contiguous, before rounding."""
    sizes = (
        (case.rows, case.heads, case.head_dim),
        (case.keys, case.key_heads, case.head_dim),
        (case.keys, case.key_heads, case.values),
    )
    q, k, v = (torch.randn(case.batch, *size, dtype=FP32, device=device) for size in sizes)
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
    if case.bounded and case.layout != "expanded":  # whose keys are those of all batches
        stray = ~case.exist().to(device)
        k[stray] = v[stray] = math.nan
    return [q, k, v]


def make(case: Case, device: str = "cpu") -> list[torch.Tensor]:
    """q, k, v of a case; then sinks, and what says where sequences lie, as it has them."""
    tensors = lay_out([t.to(case.dtype) for t in values(case, device)], case.layout)
    if case.packed:
        tensors = [t.squeeze(0) for t in tensors]
    if case.sinks is not None:
        tensors.append(2 * torch.randn(case.heads, device=device).to(case.sinks))
    if case.packed:  # both of the dtypes that are allowed
        tensors.append(torch.tensor(case.cu_seqlens_q, dtype=torch.int32, device=device))
        tensors.append(torch.tensor(case.cu_seqlens_k, dtype=torch.int64, device=device))
    if case.seqused_k:
        tensors.append(torch.tensor(case.seqused_k, dtype=torch.int32, device=device))
    if case.leftpad_k:
        kind = torch.int32 if case.seqused_k else torch.int64
        tensors.append(torch.tensor(case.leftpad_k, dtype=kind, device=device))
    return tensors


def options(case: Case, *extra: torch.Tensor) -> dict:
    """The keywords of a case's call, from what `make` gives beside q, k and v."""
    names = ["sinks"] * (case.sinks is not None) + ["cu_seqlens_q", "cu_seqlens_k"] * case.packed
    names += [name for name in ("seqused_k", "leftpad_k") if getattr(case, name)]
    keywords = {"causal": case.causal, "scale": case.scale, "softcap": case.softcap}
    if (case.window_left, case.window_right) != (None, None):
        keywords["window"] = (case.window_left, case.window_right)
    if case.packed:
        for name, side in (("max_seqlen_q", 0), ("max_seqlen_k", 1)):
            lengths = (pair[side].stop - pair[side].start for pair in case.sequences())
            keywords[name] = max([0, *lengths])
    return keywords | dict(zip(names, extra, strict=True))


def forward(case: Case, q, k, v, *extra) -> tuple[torch.Tensor, torch.Tensor]:
    """o and lse, by the backend in force."""
    return thunderkittens.attention(q, k, v, **options(case, *extra), return_lse=True)


def served_by(case: Case, q, k, v, *extra) -> str:
    """The backend that takes the call: "torch" where no kernel does."""
    return thunderkittens.explain("attention", q, k, v, **options(case, *extra)).backend


def kernel_takes(case: Case, *tensors: torch.Tensor) -> bool:
    """Whether the call launches the kernel: it is served, and there is something to do."""
    return served_by(case, *tensors) != "torch" and 0 not in (case.rows, case.keys)


def random(seed: int, count: int, longest: int = 385, widest: int = 256) -> list[Case]:
    """Cases that cross everything that attention offers.

    Args:
        seed: The same seed and sizes, the same cases.
        count: How many.
        longest: The most rows or keys of a sequence.
        widest: The largest D and Dv beside 64 and 128, a multiple of 8.
    """
    numbers = Random(f"{seed} {longest} {widest}")
    return [_bounded(_random_case(numbers, longest, widest)) for _ in range(count)]


def _bounded(case: Case) -> Case:
    """The same, or with some keys that do not exist; some bounds are to be clamped."""
    numbers = Random(str(case))
    if case.packed or numbers.random() < 0.6:
        return case
    ends = (0, 1, case.keys, case.keys + 3, -2, *(numbers.randint(0, case.keys) for _ in range(6)))
    kinds = {
        name: tuple(numbers.choice(ends) for _ in range(case.batch))
        for name in ("seqused_k", "leftpad_k")
        if numbers.random() < 0.7
    }
    return dataclasses.replace(case, **kinds)


def _random_case(numbers: Random, longest: int, widest: int) -> Case:
    edges = [n for n in EDGES if n <= longest]

    def length() -> int:
        return numbers.choice(edges) if numbers.random() < 0.7 else numbers.randint(0, longest)

    def sometimes(chance: float, choices, otherwise=None):
        return numbers.choice(choices) if numbers.random() < chance else otherwise

    def offsets(lengths) -> tuple[int, ...]:
        first = sometimes(0.25, (1, 2, 3), 0)  # tokens of no sequence
        return tuple(itertools.accumulate(lengths, initial=first))

    places = {"rows": length(), "keys": length(), "batch": numbers.choice((1, 1, 2, 3))}
    if numbers.random() < 0.3:
        places["keys"] = places["rows"]
    if numbers.random() < 0.3:
        sequences = range(numbers.randint(0, 4))
        ends = [offsets([length() for _ in sequences]) for _ in "qk"]
        totals = [end[-1] + sometimes(0.25, (1, 64), 0) for end in ends]
        places = {"rows": totals[0], "keys": totals[1]}
        places |= {"cu_seqlens_q": ends[0], "cu_seqlens_k": ends[1]}
    dtype = numbers.choice((BF16, FP16))
    widths = range(8, widest + 1, 8)
    head_dim, value_dim = sometimes(0.5, widths, numbers.choice((64, 128))), sometimes(0.3, widths)
    sides = (None, 0, 1, numbers.randint(0, longest))
    windowed = numbers.random() < 0.3
    alike = places["rows"] == places["keys"] and value_dim in (None, head_dim)
    layouts = [layout for layout in LAYOUTS if alike or layout != "packed"]
    return Case(
        **places,
        causal=numbers.random() < 0.5,
        group=numbers.choice((1, 1, 2, 3, 4, 8)),
        head_dim=head_dim,
        dtype=dtype,
        key_heads=numbers.choice((1, 2, 3)),
        layout=sometimes(0.5, layouts, "contiguous"),
        regime=sometimes(0.25, ("peaked", "mostly zeros", "tiny"), "normal"),
        scale=sometimes(0.25, (0.01, 0.3, 1.0)),
        value_dim=value_dim,
        window_left=numbers.choice(sides) if windowed else None,
        window_right=numbers.choice(sides) if windowed else None,
        softcap=sometimes(0.25, (1.0, 5.0, 30.0), 0.0),
        sinks=sometimes(0.25, (FP32, dtype)),
    )


EXAMPLE = Case(230, 600, key_heads=6)  # of `make sim`: 12 tiles, for 4 blocks
# What tests/tools/budgets.py measures.
BUDGETS = {
    "attention, full": Case(230, 300, group=2),
    "attention, causal": Case(130, 130, True, head_dim=128),
    "attention, generic kernel": Case(130, 170, True, head_dim=128, generic=True),
}
SMALL = "--rows 64 --keys 64 --key-heads 1"  # options of `make sim`, for its tests


def kernels_of(case: Case) -> contextlib.AbstractContextManager:
    """Puts the backend in force that is; with generic kernels where the case has them."""
    return kernel_kinds.taking(case.generic)


def run_case(case: Case, inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """The call of a case, by the backend in force."""
    with kernels_of(case):
        return forward(case, *inputs)


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave against float64."""
    Reference(case, *inputs).check(*results)


def gradients(case: Case, q, k, v, dout, dlse=None, extra=()) -> list[torch.Tensor]:
    """dq, dk, dv, and dsinks where there are some, by the backend in force."""
    tensors = [t.detach() for t in (q, k, v, *extra)]
    leaves = [t.requires_grad_() for t in tensors if t.is_floating_point()]
    if dlse is None:
        o = thunderkittens.attention(*tensors[:3], **options(case, *tensors[3:]))
        return list(torch.autograd.grad(o, leaves, dout))
    o, lse = forward(case, *tensors)
    return list(torch.autograd.grad((o, lse), leaves, (dout, dlse)))


def incoming(case: Case, device: str, with_lse: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Random gradients of o and, if wanted, of lse."""
    batch = [] if case.packed else [case.batch]
    dout = torch.randn(*batch, case.rows, case.heads, case.values, dtype=FP32, device=device)
    dlse = torch.randn(*batch, case.heads, case.rows, device=device) if with_lse else None
    return dout.to(case.dtype), dlse


def check_gradients(case: Case, device: str, with_lse: bool) -> None:
    """Asserts the gradients of a case with a random incoming one."""
    tensors = make(case, device)
    dout, dlse = incoming(case, device, with_lse)
    got = gradients(case, *tensors[:3], dout, dlse, tensors[3:])
    if served_by(case, *tensors) != "torch":
        assert all(t.is_contiguous() for t in got)
    Reference(case, *tensors).check_gradients(dout, dlse, *got)


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
