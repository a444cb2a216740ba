"""The problems on which hedgehog_attention is judged, on every backend: one list for all tests."""

import dataclasses

import torch
from torch import Tensor

import thunderkittens
from tests.tools import kernel_kinds
from thunderkittens import HedgehogState
from thunderkittens.testing import assert_close, tolerance

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
SHORT = {FP32: "fp32", FP16: "fp16", BF16: "bf16", FP64: "fp64"}
BLOCK = 64  # tokens

LAYOUTS = ("fused", "transposed", "offset", "stepped", "expanded")


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of hedgehog_attention.

    Attributes:
        batch: B.
        length: S.
        heads: H.
        head_dim: D.
        value_dim: E.
        features: F.
        dtype: Of q, k, v and the maps.
        states: Whether there is an initial state, and a final one is asked for.
        before: How many tokens the initial state is of; one more of each next sequence.
        size: Of q and k, a factor: how sharp the softmaxes are.
        alpha: Of all heads; random where it is negative.
        beta: Likewise.
        layout: How q, k and v lie in memory, "contiguous" or one of LAYOUTS.
        generic: Whether `run_case` takes the generic kernel.
    """

    batch: int = 1
    length: int = 200
    heads: int = 2
    head_dim: int = 128
    value_dim: int = 128
    features: int = 64
    dtype: torch.dtype = BF16
    states: bool = True
    before: int = 100
    size: float = 1.0
    alpha: float = -1.0
    beta: float = -1.0
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


def small(dtype=FP64, **options) -> Case:
    """One that torch computes, quickly."""
    sizes = {"head_dim": 8, "value_dim": 6, "features": 4}
    return Case(**{"dtype": dtype, "length": 130, **sizes, **options})


def lengths(case: Case, blocks=(0, 1, 2, 5)) -> list[Case]:
    """Around the ends of blocks, of which several make a segment."""
    ends = sorted({max(1, BLOCK * n + i) for n in blocks for i in (-1, 0, 1)})
    return [dataclasses.replace(case, length=n, heads=1) for n in ends]


def options(case: Case) -> list[Case]:
    """States of few tokens and of many; sharp softmaxes; weights of one kind alone; dtypes."""
    some: list[dict] = [
        {"states": False},
        *({"before": n, "batch": 2, "length": 70} for n in (0, 1, 63, 64, 5000)),
        {"before": 5, "length": 30},
        {"size": 0.0},
        {"size": 5.0},
        {"alpha": 0.0},
        {"alpha": 100.0, "beta": 0.01},
        {"batch": 3, "heads": 3, "length": 5},
    ]
    return [dataclasses.replace(case, **changes) for changes in some]


def widths(case: Case) -> list[Case]:
    """Heads narrower than the kernels' tiles: within half of them, and beyond."""
    some = [(64, 64), (96, 96), (8, 128), (128, 8), (80, 56), (120, 72)]
    return [dataclasses.replace(case, head_dim=d, value_dim=e) for d, e in some]


def layouts(case: Case) -> list[Case]:
    """Every way that the tensors may lie in memory."""
    return [dataclasses.replace(case, batch=2, length=67, layout=x) for x in LAYOUTS]


EXAMPLE = Case()  # of `make sim`
SMALL = "--length 66 --heads 1"  # options of `make sim`, for its tests
# What tests/tools/budgets.py measures.
BUDGETS = {
    "hedgehog_attention": Case(1, 256, 1, states=False),
    "hedgehog_attention, generic kernel": Case(1, 256, 1, states=False, generic=True),
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
    """q, k, v, q_map, k_map, alpha, beta and the fields of the initial state, or None for each."""
    exact = FP64 if case.dtype == FP64 else FP32

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device=device)

    rows = (case.batch, case.length, case.heads)
    q, k = (case.size * normal(*rows, case.head_dim) for _ in "qk")
    v = normal(*rows, case.value_dim)
    tensors = [lay_out(t.to(case.dtype), case.layout) for t in (q, k, v)]
    maps = [
        (normal(case.heads, case.head_dim, case.features) * case.head_dim**-0.5).to(case.dtype)
        for _ in "qk"
    ]
    weights = [
        (torch.rand(case.heads, device=device) if x < 0 else torch.full((case.heads,), x)).to(
            device, exact
        )
        for x in (case.alpha, case.beta)
    ]
    state: list[Tensor | None] = [None] * 5
    if case.states:
        length = case.before + torch.arange(case.batch, device=device)
        features = (case.batch, case.heads, 2 * case.features)
        has = (torch.arange(BLOCK, device=device) < length[:, None])[..., None, None]
        window = (case.batch, BLOCK, case.heads)
        state = [
            normal(*features, case.value_dim).to(exact),
            torch.rand(features, device=device).to(exact),
            (case.size * normal(*window, case.head_dim) * has).to(case.dtype),
            (normal(*window, case.value_dim) * has).to(case.dtype),
            length,
        ]
    return *tensors, *maps, *weights, *state


def run_case(case: Case, inputs) -> list[Tensor]:
    """y, and with states the final one, by the backend in force."""
    q, k, v, q_map, k_map, alpha, beta, *state = inputs
    with kernel_kinds.taking(case.generic):
        result = thunderkittens.hedgehog_attention(
            q,
            k,
            v,
            q_map,
            k_map,
            alpha=alpha,
            beta=beta,
            initial_state=HedgehogState(*state) if case.states else None,
            output_final_state=case.states,
        )
    return [result[0], *result[1]] if case.states else [result]


def features(x: Tensor, weight: Tensor) -> Tensor:
    """φ."""
    logits = torch.einsum("bshd,hdf->bshf", x, weight)
    return torch.cat([logits.softmax(-1), (-logits).softmax(-1)], -1)


def definition(
    q, k, v, q_map, k_map, alpha, beta, kv=None, k_sum=None, k_cache=None, v_cache=None, length=None
) -> list[Tensor]:
    """y, the final state, and Σ |a| |v| / |D| and Σ |a| / |D|, by matrices of all pairs of tokens.

    Of tensors of one dtype. The keys are those of the cache, oldest first, and the call's.
    """
    batch, seq = q.shape[:2]
    if length is None:
        k_cache, v_cache = (t.new_zeros(batch, BLOCK, *t.shape[2:]) for t in (k, v))
        length = torch.zeros(batch, dtype=torch.int64, device=q.device)
    of_sequence = range(batch)
    caches = [
        torch.stack([t[b].roll(-int(length[b]) % BLOCK, 0) for b in of_sequence])
        for t in (k_cache, v_cache)
    ]
    keys, values = torch.cat([caches[0], k], 1), torch.cat([caches[1], v], 1)
    i = torch.arange(seq, device=q.device)[:, None]
    j = torch.arange(keys.shape[1], device=q.device) - BLOCK
    exists = (j >= -length[:, None])[:, None, None]  # [B, 1, 1, keys]
    begin = (i // BLOCK - 1) * BLOCK
    inside = exists & (j <= i) & (j >= begin)
    scores = torch.einsum("bihd,bjhd->bhij", q, keys) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~inside, -torch.inf)
    window = (scores - scores.amax(-1, keepdim=True)).exp()
    of_q, of_k = features(q, q_map), features(keys, k_map)
    linear = torch.einsum("bihf,bjhf->bhij", of_q, of_k) * (exists & (j < begin))
    a = beta[:, None, None] * window + alpha[:, None, None] * linear
    over, under = torch.einsum("bhij,bjhe->bihe", a, values), a.sum(-1).transpose(1, 2)
    size, weight = torch.einsum("bhij,bjhe->bihe", a.abs(), values.abs()), a.abs().sum(-1)
    weight = weight.transpose(1, 2)
    left = of_k * (exists[:, 0, 0] & (j < seq - BLOCK))[..., None, None]
    final = [torch.einsum("bjhf,bjhe->bhfe", left, values), left.sum(1)]
    if kv is not None:
        by_head = alpha[:, None] * of_q
        over = over + torch.einsum("bihf,bhfe->bihe", by_head, kv)
        under = under + torch.einsum("bihf,bhf->bih", by_head, k_sum)
        size = size + torch.einsum("bihf,bhfe->bihe", by_head.abs(), kv.abs())
        weight = weight + torch.einsum("bihf,bhf->bih", by_head.abs(), k_sum.abs())
        final = [final[0] + kv, final[1] + k_sum]
    total = length + seq
    rings = [
        torch.stack([t[b, -BLOCK:].roll(int(total[b]) % BLOCK, 0) for b in of_sequence])
        for t in (keys, values)
    ]
    under = under.unsqueeze(-1)
    sizes = [(size + (over / under).abs() * weight.unsqueeze(-1)) / under.abs()]
    return [over / under, *final, *rings, total, *(t.detach() for t in sizes)]


def to_double(inputs) -> list[Tensor | None]:
    """The same values, but for the lengths, in float64."""
    return [t.double() if t is not None and t.is_floating_point() else t for t in inputs]


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave against float64.

    Each element is bounded by the same sum of absolute values, and each tensor as a whole by what
    independent roundings add up to.
    """
    exact = to_double(inputs)
    want = definition(*exact)
    q, k, _, q_map, k_map = exact[:5]
    width = case.head_dim
    score = width**-0.5 * q.abs().amax() * k.abs().amax() * width
    logit = max(
        torch.einsum("bshd,hdf->bshf", x.abs(), w.abs()).amax() for x, w in ((q, q_map), (k, k_map))
    )
    rough = max(float(score), float(logit))
    magnitudes = [t.abs() if t is not None else t for t in exact]
    magnitudes[:2] = q, k
    magnitudes[3:5] = q_map, k_map
    if case.states:
        magnitudes[9] = exact[9]
    sizes = definition(*magnitudes)[1:3]
    exact_dtype = FP64 if case.dtype == FP64 else FP32
    names = ["y", "kv_state", "k_state"][: 3 if case.states else 1]
    for name, got, right, size in zip(names, results, want, [want[6], *sizes], strict=False):
        assert got.dtype == (case.dtype if name == "y" else exact_dtype), name
        assert got.is_contiguous(), name
        bound = tolerance.hedgehog_attention(right, size, case.dtype, case.length, rough)
        assert_close(got, right, bound, name)
        check_rms(name, got, right, case)
    for got, right in zip(results[3:], want[3:6], strict=False):
        assert torch.equal(got.double(), right.double())
    if case.states:
        assert [t.dtype for t in results[3:]] == [case.dtype, case.dtype, torch.int64]


def check_rms(name: str, got: Tensor, exact: Tensor, case: Case) -> None:
    """Of independent roundings, each of rms u / √3: four on a path, with the result's own."""
    if case.dtype not in (BF16, FP16) or exact.norm() == 0:
        return
    unit = 2 * tolerance.unit(case.dtype)
    error = ((got.double() - exact).norm() / exact.norm()).item()
    assert error <= 1.2 * unit, f"{name}: off by {error:.2e} of its norm, {unit:.2e} is a rounding"
