"""Rows of cross_entropy far from 0, where neighbours differ in probability by e⁶⁴ and more."""

import dataclasses
import itertools
import math

import torch

import thunderkittens
from tests.families.cross_entropy.cases import BF16, FP32, SHORT, copy_in_place
from thunderkittens.testing import tolerance

MAGNITUDES = (7.6e8, 1e9, 2e9, 1e15, 1e30, 1e38, 3.3e38)
OPTIONS = ({}, {"label_smoothing": 0.1}, {"z_loss": 1e-3, "label_smoothing": 0.9})


@dataclasses.dataclass(frozen=True)
class Far:
    """One call of cross_entropy on rows of which most are far, in different ways.

    Attributes:
        width: V.
        dtype: Of the logits.
        magnitude: Of the largest logits; those of float32 may have no place in 16 bits.
        rows: How many; a multiple of what `make` makes, or less.
        label_smoothing: As given to the op.
        z_loss: Likewise.
        inplace: The gradient takes the place of the logits.
    """

    width: int
    dtype: torch.dtype = FP32
    magnitude: float = 1e15
    rows: int = 14
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    inplace: bool = False

    def __str__(self) -> str:
        given = [f"{self.rows}x{self.width}", SHORT[self.dtype], f"{self.magnitude:.2g}"]
        for field in dataclasses.fields(self)[4:]:
            if getattr(self, field.name) != field.default:
                given.append(f"{field.name}={getattr(self, field.name)}")
        return ",".join(given)

    @property
    def options(self) -> dict:
        """What the op takes."""
        return {"label_smoothing": self.label_smoothing, "z_loss": self.z_loss}


def every(width: int, rows: int = 14, options=OPTIONS) -> list[Far]:
    """All magnitudes; with the options and in place in turn."""
    turns = itertools.cycle(itertools.product((False, True), options, (FP32, BF16)))
    return [
        Far(width, dtype, magnitude, rows, inplace=inplace, **given)
        for magnitude, (inplace, given, dtype) in zip(2 * MAGNITUDES, turns, strict=False)
    ]


def make(case: Far, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and targets: 14 kinds of rows, over and over."""
    width, most = case.width, case.magnitude
    kinds = torch.randn(14, width, device=device).clamp(-4, 4)
    column = torch.arange(width, device=device)
    far = most / 4 * kinds
    kinds[0] = far[0]
    kinds[0, width // 3] = most
    kinds[2] = far[2].masked_fill(column % 3 == 1, most)  # many are the largest
    kinds[3] = far[3].masked_fill(column % 2 == 0, -math.inf)
    kinds[4] = -most  # all are
    kinds[5] = -most + far[5].abs() / 2
    kinds[6, width // 3 :] = -most  # near, for all that some threads see no other logit
    kinds[7] = -math.inf
    kinds[7, width - 1] = most
    kinds[8] = most * (1 - 2 * (column % 2))
    kinds[9], kinds[9, width // 2] = far[9], math.nan
    kinds[10] = -math.inf
    kinds[11], kinds[11, 0] = far[11], math.inf
    kinds[12] = -most
    kinds[12, : width // 2] = -math.inf
    targets = torch.randint(0, width, (14,), device=device)
    targets[[0, 7]] = width // 3
    targets[[2, 4]] = width - 1
    targets[13] = -100
    times = -(-case.rows // 14)
    x = kinds.to(case.dtype).repeat(times, 1)[: case.rows]
    return x, targets.repeat(times)[: case.rows]


def run(case: Far, logits: torch.Tensor, targets: torch.Tensor) -> list[torch.Tensor]:
    """The losses alone, those with a gradient, and the gradient of the logits."""
    options = {"reduction": "none", **case.options}
    alone = thunderkittens.cross_entropy(logits, targets, **options)
    leaf = logits.detach().requires_grad_()
    x = copy_in_place(leaf) if case.inplace else leaf
    loss = thunderkittens.cross_entropy(x, targets, inplace=case.inplace, **options)
    (gradient,) = torch.autograd.grad(loss, leaf, torch.ones_like(loss))
    return [alone, loss.detach(), gradient]


def check(case: Far, inputs, results) -> None:
    """Asserts the results of `run` against float64."""
    logits, targets = inputs
    alone, loss, gradient = results
    want, bound = _losses(case, logits.double(), targets)
    _assert_within(alone, want, bound, "loss alone")
    _assert_within(loss, want, bound, "loss")
    _assert_within(gradient, *_gradient(case, logits.double(), targets), "gradient")


def check_all(
    device: str, width: int, rows: int = 14, at_once: int | None = None, options=OPTIONS
) -> None:
    """`check` of `every` case, by calls of `at_once` rows."""
    for case in every(width, rows, options):
        inputs = make(case, device)
        calls = zip(*(t.split(at_once or rows) for t in inputs), strict=True)
        parts = zip(*(run(case, *call) for call in calls), strict=True)
        check(case, inputs, [torch.cat(part) for part in parts])


def _probabilities(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The log-sum-exp [rows, 1], the probabilities, and how far each is off, relatively."""
    top = x.amax(-1, keepdim=True)
    below = x - top
    e = below.exp()
    total = e.sum(-1, keepdim=True)
    eps = torch.finfo(FP32).eps
    off = tolerance.accumulation(x.shape[-1], FP32) + 8 * eps * (
        2 + below.abs().nan_to_num(posinf=0)
    )
    return top + total.log(), e / total, off


def _losses(case: Far, x: torch.Tensor, targets: torch.Tensor):
    eps, infinite = torch.finfo(FP32).eps, torch.finfo(FP32).max
    lse, smooth, z = _probabilities(x)[0].squeeze(-1), case.label_smoothing, case.z_loss
    picked = x.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    want, size = lse + z * lse.square(), lse.abs() + 2 * z * lse.square()
    if smooth < 1:
        want, size = want - (1 - smooth) * picked, size + picked.abs()
    if smooth > 0:
        want = want - smooth * x.mean(-1)
        size = size + tolerance.accumulation(x.shape[-1], FP32) / eps * x.abs().mean(-1)
    bound = 8 * eps * (1 + size)
    want = torch.where(want + bound >= infinite, math.inf, want)
    want = torch.where(x.isnan().any(-1) | ~x.amax(-1).isfinite(), math.nan, want)
    return want.masked_fill(targets == -100, 0.0), bound.masked_fill(targets == -100, 0.0)


def _gradient(case: Far, x: torch.Tensor, targets: torch.Tensor):
    info = torch.finfo(FP32)
    lse, p, off = _probabilities(x)
    smooth, weight = case.label_smoothing / case.width, 1 + 2 * case.z_loss * lse
    hit = torch.zeros_like(x).scatter_(-1, targets.clamp(min=0).unsqueeze(-1), 1.0)
    hit = (1 - case.label_smoothing) * hit
    want = p * weight - hit - smooth
    bound = (p * weight).abs() * torch.where(p > 0, off.expm1(), 0.0)
    bound = bound + 8 * info.eps * ((p * weight).abs() + hit + smooth)
    bound = bound + info.smallest_normal * (1 + weight.abs())  # what is flushed
    bound = bound + 4 * tolerance.unit(case.dtype) * (want.abs() + bound)
    bound = bound + 2 * tolerance.floor(case.dtype)
    undefined = x.isnan().any(-1, keepdim=True) | ~x.amax(-1, keepdim=True).isfinite()
    want = want.masked_fill(undefined, math.nan)
    ignored = (targets == -100).unsqueeze(-1)
    return want.masked_fill(ignored, 0.0), bound.masked_fill(ignored, 0.0)


def _assert_within(got: torch.Tensor, want: torch.Tensor, bound: torch.Tensor, name: str) -> None:
    got = got.double()
    fits = ((got - want).abs() <= bound) | (got == want) | (got.isnan() & want.isnan())
    wrong = (~fits).nonzero()
    assert not len(wrong), (
        f"{name}: {len(wrong)} are wrong, the first at {wrong[0].tolist()}: "
        f"{got[tuple(wrong[0])]} for {want[tuple(wrong[0])]}"
    )
