"""The problems on which rotary is judged, on every backend: one list, three files of tests."""

import dataclasses
import itertools

import torch

import thunderkittens
from thunderkittens.testing import assert_close, memory, tolerance

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
SHORT = {FP32: "fp32", FP16: "fp16", BF16: "bf16", FP64: "fp64"}

# Head dimensions and how much of each is turned: of known models, around 16 bytes, at the ends.
WIDTHS = (
    *((d, d) for d in (2, 6, 16, 64, 80, 96, 128, 256, 512)),
    *(
        (64, 32),
        (128, 64),
        (96, 24),
        (80, 20),
        (80, 32),
        (128, 126),
        (129, 128),
        (7, 4),
        (72, 16),
        (1, 0),
    ),
    (16, 0),
)
LAYOUTS = ("fused", "grouped", "transposed", "offset", "sliced", "stepped", "expanded")
GRADIENTS = ("contiguous", "transposed", "stepped", "constant")
OFFSETS = ("none", "integer", "int32", "int64", "outside")


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of rotary.

    Attributes:
        batch: B; where the sequences are packed, it is their lengths that count.
        tokens: S.
        heads: Hq.
        key_heads: Hk.
        head_dim: D.
        rotated: R; -1 for D.
        dtype: Of q and k.
        table: The dtype of cos and sin, None for that of q.
        interleaved: As given to the op.
        offsets: One of OFFSETS; "outside" are int64 and mostly not of the table.
        lengths: Of packed sequences; none: not packed.
        room: Tokens before the first sequence and after the last.
        layout: How q and k lie in memory, "contiguous" or one of LAYOUTS.
        gradient: How dq and dk do, one of GRADIENTS.
    """

    batch: int = 2
    tokens: int = 3
    heads: int = 4
    key_heads: int = 2
    head_dim: int = 64
    rotated: int = -1
    dtype: torch.dtype = BF16
    table: torch.dtype | None = None
    interleaved: bool = False
    offsets: str = "none"
    lengths: tuple[int, ...] = ()
    room: tuple[int, ...] = (0, 0)
    layout: str = "contiguous"
    gradient: str = "contiguous"

    @property
    def pairs(self) -> int:
        """R / 2."""
        return (self.head_dim if self.rotated < 0 else self.rotated) // 2

    def __str__(self) -> str:
        parts = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                text = SHORT.get(value, value) if field.type is not bool else field.name
                known = field.name in ("dtype", "interleaved", "layout")
                parts.append(str(text) if known else f"{field.name}={text}")
        return ",".join(parts).replace(" ", "") or "default"


def widths(values=WIDTHS, dtypes=(FP32, FP16, BF16)) -> list[Case]:
    """Every width in every dtype, with halves and with neighbours."""
    return [
        Case(head_dim=d, rotated=r, dtype=t, interleaved=i)
        for (d, r), t, i in itertools.product(values, dtypes, (False, True))
    ]


def options() -> list[Case]:
    """Tables of float32, and every kind of offsets."""
    wide = [Case(dtype=t, table=FP32, interleaved=i) for t in (FP16, BF16) for i in (False, True)]
    odd = [Case(head_dim=d, rotated=r, table=FP32) for d, r in ((6, 6), (80, 20))]
    return [*wide, *odd, *(Case(4, 5, offsets=o) for o in OFFSETS[1:])]


def heads() -> list[Case]:
    """Counts of heads: one operand without any, and more of them than a block takes at once."""
    some = [(1, 1), (5, 5), (3, 0), (0, 3), (32, 8), (8, 1), (1, 8), (70, 3)]
    return [Case(heads=q, key_heads=k, head_dim=d) for q, k in some for d in (64, 6)] + [
        Case(1, 2, 40, 40, 256, dtype=FP32),
        Case(1, 1, 2, 2, 1024),
        Case(1, 2, 9, 4, 1024, dtype=FP32),
        Case(1, 1, 16, 8, 768, dtype=FP32, interleaved=True),
        Case(1, 1, 3, 2, 1022, dtype=FP16),
        Case(3, 40, 1, 1, 16),
    ]


def packings() -> list[Case]:
    """Packed sequences: empty ones, a single one, tokens that belong to none, offsets."""
    return [
        Case(lengths=(3, 5, 1)),
        Case(lengths=(0, 4, 0, 0, 3, 0), interleaved=True),
        Case(lengths=(9,), head_dim=6),
        Case(lengths=(2, 3), room=(2, 4)),
        Case(lengths=(2, 0, 3), room=(1, 1), offsets="int32"),
        Case(lengths=(1,) * 33, offsets="int64", heads=1, key_heads=1),
        Case(lengths=(4, 2, 1, 3, 1), offsets="outside", layout="transposed"),
        Case(lengths=(4, 2), offsets="integer", layout="fused"),
    ]


def layouts(head_dim: int = 64) -> list[Case]:
    """Every way that q and k, then their gradients, may lie in memory."""
    return [
        *(Case(layout=x, head_dim=head_dim, dtype=t) for x in LAYOUTS for t in (FP32, BF16)),
        *(Case(gradient=g, head_dim=head_dim) for g in GRADIENTS[1:]),
    ]


EXAMPLE = Case(2, 20, 8, 2, 128)  # of `make sim`
# What tests/tools/budgets.py measures.
BUDGETS = {
    "rotary": Case(1, 4, 32, 8, 128),
    "rotary, single elements": Case(1, 4, 4, 2, 90),
}
SMALL = "--tokens 2 --lengths 3,2"  # options of `make sim`, for its tests


def lay_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values (of the first token alone when expanded) with other strides."""
    *leading, heads, width = values.shape
    if layout in ("contiguous", "fused", "grouped"):
        return values
    if layout == "expanded":
        return values.narrow(-3, 0, 1).expand_as(values)
    if layout == "constant":  # what y.sum().backward() gives: one number, all strides 0
        return values.flatten()[:1].view((1,) * values.dim()).expand_as(values)
    if layout == "offset":
        room = values.new_zeros(values.numel() + 1)[1:].view(values.shape)
    elif layout == "sliced":
        room = values.new_zeros(*leading, heads, width + 3)[..., 1 : width + 1]
    elif layout == "stepped":
        room = values.new_zeros(*leading, heads, 2 * width)[..., ::2]
    else:
        room = values.new_zeros(*leading[:-1], heads, leading[-1], width).transpose(-3, -2)
    return room.copy_(values)


def queries_and_keys(case: Case, leading: tuple[int, ...], device: str) -> list[torch.Tensor]:
    """q and k, alone or as parts of one projection."""

    def normal(*shape):
        return torch.randn(*leading, *shape, case.head_dim, dtype=FP32, device=device).to(
            case.dtype
        )

    if case.layout == "fused":  # [B, S, 3, H, D], of as many heads as both have
        both = normal(3, max(case.heads, case.key_heads))
        return [both[..., 0, : case.heads, :], both[..., 1, : case.key_heads, :]]
    if case.layout == "grouped":  # [B, S, Hq + 2 Hk, D]
        both = normal(case.heads + 2 * case.key_heads)
        return [
            both[..., : case.heads, :],
            both[..., case.heads : case.heads + case.key_heads, :],
        ]
    return [lay_out(normal(h), case.layout) for h in (case.heads, case.key_heads)]


def make(case: Case, device: str = "cpu") -> tuple[torch.Tensor | None, ...]:
    """q, k, cos, sin, offsets (also where they are an integer), cu_seqlens, dq and dk of a case."""
    count = len(case.lengths) if case.lengths else case.batch
    longest = max(case.lengths, default=case.tokens)
    offsets = None
    if case.offsets == "integer":
        offsets = torch.tensor(2)
    elif case.offsets != "none":
        kind = torch.int32 if case.offsets == "int32" else torch.int64
        offsets = torch.arange(count, dtype=kind, device=device) % 4
    if case.offsets == "outside":
        most = torch.iinfo(torch.int64).max
        some = torch.tensor([longest + 3, -most - 1, most, -2], device=device)
        offsets = some[offsets % 4]
    leading, cu_seqlens = (case.batch, case.tokens), None
    if case.lengths:
        ends = torch.tensor((0, *case.lengths), device=device).cumsum(0) + case.room[0]
        cu_seqlens = ends.to(torch.int32 if case.offsets == "int64" else torch.int64)
        leading = (sum(case.lengths) + sum(case.room),)
    q, k = queries_and_keys(case, leading, device)
    angle = 6.3 * torch.rand(longest + 3, case.pairs, dtype=FP64, device=device)
    cos, sin = angle.cos().to(case.table or case.dtype), angle.sin().to(case.table or case.dtype)
    dq, dk = (torch.randn(t.shape, dtype=FP32, device=device).to(case.dtype) for t in (q, k))
    return (
        q,
        k,
        cos,
        sin,
        offsets,
        cu_seqlens,
        lay_out(dq, case.gradient),
        lay_out(dk, case.gradient),
    )


def keywords(case: Case, offsets, cu_seqlens) -> dict:
    """The keyword arguments of the call."""
    given: dict = {"interleaved": case.interleaved}
    if offsets is not None:
        given["offsets"] = int(offsets) if case.offsets == "integer" else offsets
    if cu_seqlens is not None:
        given |= {"cu_seqlens": cu_seqlens, "max_seqlen": max(case.lengths)}
    return given


def same_strides(t: torch.Tensor) -> torch.Tensor:
    """A copy that lies in memory as t does."""
    span = 1 + sum((s - 1) * d for s, d in zip(t.shape, t.stride(), strict=True))
    room = t.new_zeros(max(span, 0) if t.numel() else 0)
    return room.as_strided(t.shape, t.stride()).copy_(t)


def run_case(case: Case, inputs) -> list[torch.Tensor]:
    """q and k turned, also in place, and their gradients, by the backend in force."""
    q, k, cos, sin, offsets, cu_seqlens, dq, dk = inputs
    given = keywords(case, offsets, cu_seqlens)
    leaves = [t.detach().requires_grad_() for t in (q, k)]
    turned = thunderkittens.rotary(*leaves, cos, sin, **given)
    gradients = torch.autograd.grad(turned, leaves, (dq, dk))
    results = [*(t.detach() for t in turned), *gradients]
    if case.layout != "expanded":
        written = [same_strides(t) for t in (q, k)]
        thunderkittens.rotary(*written, cos, sin, inplace=True, **given)
        results += written
    return results


def table_rows(case: Case, inputs) -> torch.Tensor:
    """The row of the table for each token: [S], [B, S] or packed [N]; by the definition."""
    q, _, cos, _, offsets, cu_seqlens, _, _ = inputs
    of_sequence = [0] * max(case.batch, len(case.lengths))
    if case.offsets == "integer":
        of_sequence = [int(offsets)] * len(of_sequence)
    elif offsets is not None:
        of_sequence = offsets.tolist()
    if cu_seqlens is None:
        rows = [[t + of_sequence[b] for t in range(case.tokens)] for b in range(case.batch)]
    else:
        starts, rows = cu_seqlens.tolist(), []
        for t in range(q.shape[0]):
            sequence = sum(start <= t for start in starts) - 1
            start = starts[sequence] if sequence >= 0 else 0
            inside = 0 <= sequence < len(case.lengths)
            shared = case.offsets == "integer"
            rows.append(t - start + (of_sequence[sequence] if inside else shared * of_sequence[0]))
    last = cos.shape[0] - 1
    clamped = [
        [min(max(r, 0), last) for r in row] if isinstance(row, list) else min(max(row, 0), last)
        for row in rows
    ]
    return torch.tensor(clamped, device=q.device).long()


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave against float64; in place it is the same bits."""
    q, k, cos, sin, _, _, dq, dk = inputs
    rows = table_rows(case, inputs)
    c, s = cos[rows], sin[rows]
    names = ("q", "k", "dq", "dk")
    for name, x, got, sine in zip(names, (q, k, dq, dk), results[:4], (s, s, -s, -s), strict=True):
        assert_close(got, *tolerance.rotary(x, c, sine, case.interleaved), name)
        assert got.dtype == case.dtype
        assert got.is_contiguous()
        rest = 2 * case.pairs
        assert memory.bits_equal(got[..., rest:], x[..., rest:]), f"{name}: copied elements"
    for name, got, want in zip(names, results[4:], results[:2], strict=False):
        assert memory.bits_equal(got, want), f"{name} in place"


def check_not_finite(device: str) -> None:
    """Asserts that a NaN or an infinity spoils its pair, and no other element."""
    for dtype, interleaved in itertools.product((FP32, BF16), (False, True)):
        case = Case(1, 2, 2, 1, 64, 32, dtype, interleaved=interleaved)
        inputs = make(case, device)
        q = inputs[0]
        q[0, 0, 0, 3], q[0, 1, 1, 17], q[0, 0, 1, 40] = float("nan"), float("inf"), float("nan")
        check_case(case, inputs, run_case(case, inputs))


def check_wrong_lengths(device: str) -> None:
    """Asserts that cu_seqlens that make no sense cost no more than the meaning of the positions."""
    case = Case(lengths=(4, 5), heads=2, key_heads=1, head_dim=16, dtype=FP32)
    q, k, cos, sin, *_ = make(case, device)
    low, high = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
    for starts in ([low, high, low], [high, low], [5, 3, 1], [-4, -2], [0], [low], [high, high]):

        def call(*tensors):
            return thunderkittens.rotary(*tensors[:4], cu_seqlens=tensors[4], max_seqlen=5)

        cu_seqlens = torch.tensor(starts, device=device)
        turned, _ = memory.check_memory(call, q, k, cos, sin, cu_seqlens)
        rows = zip(cos, sin, strict=True)
        each = [tolerance.rotary(q, c.expand(9, -1), s.expand(9, -1))[0] for c, s in rows]
        error = (
            (turned.double() - torch.stack(each)).abs().amax((-1, -2))
        )  # by row of the table and token
        assert (error.amin(0) < 1e-5).all()
