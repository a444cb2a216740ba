"""The problems on which rms_norm, add_layer_norm and add_rms_norm are judged, on every backend."""

import dataclasses
import itertools

import numpy as np
import torch

import thunderkittens
from tests.families.norm.cases import WIDTHS
from tests.tools.tensors import BF16, FP16, FP32, FP64, SHORT, lay_out
from thunderkittens.testing import assert_close, tolerance

OPS = ("rms_norm", "add_layer_norm", "add_rms_norm")
ADDS = OPS[1:]
# The edges of the kernels: a lane's 8 elements, lanes that double, 256 columns of a few lanes.
FEW = (1, 8, 64, 65, 128, 129, 256, 257, 768, 1025)
WIDE = 16385  # the first width whose row is read more than once


@dataclasses.dataclass(frozen=True)
class Case:
    """One call, forward and backward.

    Attributes:
        op: One of OPS.
        width: N.
        leading: The sizes before it.
        dtype: Of x.
        weight: Its dtype, or None for no weight; of the bias as well.
        residual: Its dtype, where the op adds one.
        layout: How x lies in memory: a layout of norm_cases, or "heads".
        gradient: How dy and dsum do.
        offset: weight_offset.
        casting: As given to the op.
        p: dropout_p.
        dsum: Whether a gradient arrives at the sum.
        scale: Of x: statistics must not depend on it.
    """

    op: str
    width: int
    leading: tuple[int, ...] = (3,)
    dtype: torch.dtype = FP32
    weight: torch.dtype | None = FP32
    residual: torch.dtype = FP32
    layout: str = "contiguous"
    gradient: str = "contiguous"
    offset: float = 0.0
    casting: str = "llama"
    p: float = 0.0
    dsum: bool = True
    scale: float = 1.0

    def __str__(self) -> str:
        parts = [self.op, "x".join(map(str, (*self.leading, self.width))), SHORT[self.dtype]]
        for name in ("weight", "residual"):
            if getattr(self, name) != self.dtype:
                parts.append(f"{name}={SHORT.get(getattr(self, name))}")
        for name in ("layout", "gradient", "offset", "casting", "p", "dsum", "scale"):
            if getattr(self, name) != Case.__dataclass_fields__[name].default:
                parts.append(f"{name}={getattr(self, name)}")
        return ",".join(parts).replace(" ", "_")

    @property
    def adds(self) -> bool:
        """Whether the op adds a residual."""
        return self.op in ADDS

    @property
    def centred(self) -> bool:
        """Whether the norm has a mean, and so a bias."""
        return self.op == "add_layer_norm"


def widths(values=WIDTHS, dtypes=(FP32, FP16, BF16), leading=(3,), p=0.0) -> list[Case]:
    """Every width in every dtype and op, parameters and residual of x's dtype."""
    return [
        Case(op, w, leading, d, d, d, p=p if op in ADDS else 0.0)
        for op, w, d in itertools.product(OPS, values, dtypes)
    ]


def options(width: int, leading=(5,)) -> list[Case]:
    """The arguments' dtypes, castings, offsets, dropout, and gradients that do not arrive."""
    cases = []
    for op, dtype in itertools.product(OPS, (FP32, BF16)):
        base = Case(op, width, leading, dtype, dtype, dtype)
        changes = [{"weight": None}, {"weight": FP32}]
        if op != "add_layer_norm":
            changes += [{"casting": "gemma"}, {"offset": 1.0}]
            changes += [{"offset": -0.5, "casting": "gemma"}, {"weight": None, "offset": 1.0}]
        if op in ADDS:
            changes += [{"residual": FP32}, {"p": 0.3}, {"p": 0.3, "residual": FP32}]
            changes += [{"dsum": False}, {"dsum": False, "p": 0.7}]
        cases += [dataclasses.replace(base, **change) for change in changes]
    return list(dict.fromkeys(cases))


def layouts(width: int, leading=(2, 3)) -> list[Case]:
    """Every way that x and residual, then the gradients, may lie in memory."""
    cases = []
    for op in OPS:
        base = Case(op, width, leading, BF16, BF16, BF16)
        for layout in ("sliced", "offset", "stepped", "permuted", "expanded", "heads"):
            cases.append(dataclasses.replace(base, layout=layout))
        for layout in ("sliced", "permuted", "expanded", "constant", "heads"):
            cases.append(dataclasses.replace(base, gradient=layout))
    return cases


def place(values: torch.Tensor, layout: str) -> torch.Tensor:
    """As lay_out; "heads": the middle one of three such tensors, fused per second dimension."""
    if layout != "heads":
        return lay_out(values, layout)
    batch, heads, width = values.shape
    room = values.new_zeros(batch, 3, heads + 1, width)[:, 1, :heads]
    return room.copy_(values)


def make(case: Case, device: str = "cpu") -> tuple[torch.Tensor | None, ...]:
    """x, residual, weight, bias, dy, dsum and the seed of a case; None where it has none."""
    shape = (*case.leading, case.width)

    def normal(*size, centre=0.0, scale=1.0):
        return centre + scale * torch.randn(*size, dtype=FP32, device=device)

    def parameter(centre):
        return None if case.weight is None else normal(case.width, centre=centre).to(case.weight)

    x = place(normal(*shape, scale=case.scale).to(case.dtype), case.layout)
    dy = place(normal(*shape).to(case.dtype), case.gradient)
    weight = parameter(1.0)
    if not case.adds:
        return x, None, weight, None, dy, None, None
    residual = place(normal(*shape, scale=case.scale).to(case.residual), case.layout)
    dsum = place(normal(*shape).to(case.residual), case.gradient) if case.dsum else None
    seed = torch.tensor([2**40 + 17], device=device) if case.p else None
    return x, residual, weight, parameter(0.0) if case.centred else None, dy, dsum, seed


def call(case: Case, x, residual, weight, bias, seed) -> tuple[torch.Tensor, ...]:
    """The public function: y, or y and sum."""
    rms = {} if case.centred else {"weight_offset": case.offset, "casting": case.casting}
    if not case.adds:
        return (thunderkittens.rms_norm(x, weight, 1e-5, **rms),)
    parameters = (weight, bias) if case.centred else (weight,)
    function = getattr(thunderkittens, case.op)
    return function(x, residual, *parameters, eps=1e-5, dropout_p=case.p, seed=seed, **rms)


def run(case: Case, x, residual, weight, bias, dy, dsum, seed) -> list[torch.Tensor | None]:
    """y, sum, dx, dresidual, dweight, dbias through autograd; None for what there is not."""
    leaves = [
        None if t is None else t.detach().requires_grad_() for t in (x, residual, weight, bias)
    ]
    outputs = call(case, *leaves, seed)
    arriving = [(y, d) for y, d in zip(outputs, (dy, dsum), strict=False) if d is not None]
    given = [t for t in leaves if t is not None]
    found = torch.autograd.grad([y for y, _ in arriving], given, [d for _, d in arriving])
    gradients = iter(found)
    y, total = (*outputs, None)[:2]
    return [
        y.detach(),
        None if total is None else total.detach(),
        *(None if t is None else next(gradients) for t in leaves),
    ]


def mask(seed: int, count: int, p: float) -> np.ndarray:
    """Which elements are kept, by Philox 4x32 with 7 rounds in numpy."""
    low = np.uint64(0xFFFFFFFF)
    counter = np.arange((count + 3) // 4, dtype=np.uint64)
    zeros = np.zeros_like(counter)
    c = [counter & low, counter >> np.uint64(32), zeros, zeros]
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(7):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            b >> np.uint64(32) ^ c[1] ^ np.uint64(key[0]),
            b & low,
            a >> np.uint64(32) ^ c[3] ^ np.uint64(key[1]),
            a & low,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, 1).reshape(-1)[:count] >= round(p * 2**32)


def factor_of(case: Case, x: torch.Tensor, seed: torch.Tensor | None) -> torch.Tensor | float:
    """What dropout multiplies x by."""
    if seed is None:
        return 1.0
    kept = torch.from_numpy(mask(int(seed), x.numel(), case.p)).view(x.shape)
    return kept.to(x.device, FP64) / (1 - case.p)


def check(case: Case, inputs, results) -> None:
    """Asserts the results of `run` against float64, element by element and row by row."""
    x, residual, weight, bias, dy, dsum, seed = inputs
    y, total, *gradients = results
    statistics = FP64 if case.dtype == FP64 else FP32
    if case.adds:
        norm = {"centred": case.centred, "weight_offset": case.offset, "statistics": statistics}
        norm["factor"] = factor_of(case, x, seed)
        wants = tolerance.add_norm(x, residual, weight, bias, 1e-5, casting=case.casting, **norm)
        wants += tolerance.add_norm_backward(
            dy, dsum, x, residual, total, weight, bias, 1e-5, **norm
        )
    else:
        options = (1e-5, case.offset)
        forward = tolerance.rms_norm(x, weight, *options, case.casting, statistics)
        dx, dweight = tolerance.rms_norm_backward(dy, x, weight, *options, statistics)
        wants = [forward, None, dx, None, dweight, None]
    likes = (x, residual, x, residual, weight, bias)
    names = ("y", "sum", "dx", "dresidual", "dweight", "dbias")
    for got, like, want, name in zip((y, total, *gradients), likes, wants, names, strict=True):
        if like is None:
            continue
        assert got.dtype == like.dtype, f"{name} is {got.dtype}"
        assert got.is_contiguous(), name
        assert_close(got, *want, name)


EXAMPLE = Case("add_rms_norm", 1024, (20,), BF16, BF16, BF16, p=0.1)  # of `make sim`
# What tests/tools/budgets.py measures.
BUDGETS = {
    "rms_norm, heads": Case("rms_norm", 128, (4, 40), BF16, BF16, layout="heads"),
    "add_rms_norm, dropout": EXAMPLE,
}


def run_case(case: Case, inputs) -> list[torch.Tensor | None]:
    """The calls of a case, forward and backward, by the backend in force."""
    return run(case, *inputs)


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave against float64."""
    check(case, inputs, results)
