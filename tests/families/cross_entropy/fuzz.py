"""cross_entropy: loss and gradient of rows of logits.

Let m be a row's largest logit and e_j = exp(x_j − m). An exponent is a product rounded once, so
that e_j is off by η_j = 4u · (2 + |x_j − m|), whatever m is; their sum by Σ η_j e_j and the
roundings of the sum, 64u more for chains that are rescaled as the largest logit of what came so far
changes. In p = e / Σ e nothing of lse = m + ln Σ e is rounded, so p has those errors alone, and not
u · |lse|.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

import thunderkittens
from tests.fuzz.arithmetic import Arithmetic, walk
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import DTYPES, FP16, FP32, FP64, Draw
from tests.fuzz.placement import Placed

OPS = ("cross_entropy",)
WITHOUT = ("huge",)  # which "edge" goes beyond


@dataclasses.dataclass(frozen=True)
class Options:
    """What the losses have in common."""

    ignore_index: int
    reduction: str
    label_smoothing: float
    z_loss: float

    @staticmethod
    def drawn(draw: Draw) -> Options:
        return Options(
            draw.choice((-100, -100, 0, 3)),
            draw.choice(("mean", "mean", "sum", "none")),
            draw.choice((0.0, 0.0, 0.0, 0.1, 1.0)),
            draw.choice((0.0, 0.0, 0.0, 1e-4, 0.1)),
        )

    def keywords(self) -> dict:
        """As the ops take them."""
        return dataclasses.asdict(self)


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    elements = draw.elements()
    width = draw.size(elements)
    if draw.large and draw.chance(0.06):
        width = draw.choice((50257, 50304, 32000, 128256, 131073, 262144, 4097, 65536))
    shape = (*draw.leading(max(1, elements // width)), width)
    if draw.large and draw.chance(0.03):  # rows that come in chunks, and fill the memory
        shape = draw.choice(((61, 262144), (122, 131073), (400, 50257), (120, 128256)))
        width = shape[-1]
    options = Options.drawn(draw)
    regime = draw.regime("holes", "far", "masks", without=WITHOUT)
    values = logits(draw, shape, dtype, regime)
    targets = drawn_targets(draw, shape[:-1], width, options.ignore_index)
    # An ignored row may hold anything.
    ignored = targets == options.ignore_index
    if draw.chance(0.4):
        values = values.masked_fill(ignored.unsqueeze(-1), math.nan)
    spoil_rows(draw, values)

    leaves = ("logits",) if draw.chance(0.8) else ()
    inplace = bool(leaves) and draw.chance(0.3)
    inputs = {
        "logits": draw.place(values, expand=not inplace, rows=inplace),
        "targets": draw.place(targets, expand=True),
    }
    inputs["targets"] = in_dtype(draw, inputs["targets"])
    dloss = incoming_gradient(draw, options, ignored, dtype)

    def call(tensors: Tensors) -> Tensors:
        loss = thunderkittens.cross_entropy(**tensors, **options.keywords(), inplace=inplace)
        return {"loss": loss}

    def judge(results: Tensors) -> dict[str, Judged]:
        x, aims = inputs["logits"].values, inputs["targets"].values
        rows = Rows(options, x.double(), aims, draw.kernels and dtype != FP64, dtype)
        judged = {"loss": rows.loss()}
        if leaves:
            judged["dlogits"] = rows.gradient(dloss.values, dtype)
        return judged

    title = describe(
        dtype=dtype_name(dtype),
        shape=list(shape),
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        regime=regime,
        leaves=leaves,
        inplace=inplace,
        **options.keywords(),
    )
    incoming = {"loss": dloss} if leaves else {}
    # In place without a gradient nothing is written.
    return Case(title, inputs, call, judge, leaves, incoming, ("logits",) * inplace)


def logits(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype, regime: str) -> Tensor:
    """With "holes", columns without probability; "far": of any size; "masks": some far below."""
    most, info = 15 if dtype == FP16 else 127, torch.finfo(dtype)
    if regime == "far":
        each = draw.integers((*shape[:-1], 1), 2, most).double()
        x = draw.normal(shape) * 2.0 ** (each if draw.chance(0.5) else draw.integer(2, most))
        return x.clamp(-info.max, info.max).to(dtype)
    if regime == "masks":
        masks = -(2.0 ** draw.integer(8, most)) * draw.random.uniform(1, 2)
        hidden = draw.uniform((shape[-1],) if draw.chance(0.5) else shape)
        x = draw.normal(shape).masked_fill(hidden < draw.choice((0.5, 0.99)), masks)
        return x.clamp(-info.max, info.max).to(dtype)
    if regime != "holes":
        return draw.values(shape, dtype, regime)
    values = draw.values(shape, dtype, "normal")
    return values.masked_fill(draw.uniform(shape) < draw.choice((0.1, 0.75, 0.99)), -math.inf)


def spoil_rows(draw: Draw, values: Tensor) -> None:
    """Sometimes a row has a NaN, +∞, or −∞ alone."""
    if values.numel() and draw.chance(0.1):
        rows = values.view(-1, values.shape[-1])
        row = rows[draw.integer(0, len(rows) - 1)]
        row[draw.integer(0, len(row) - 1)] = draw.choice((math.nan, math.inf))
        if draw.chance(0.4):
            row.fill_(-math.inf)


def drawn_targets(draw: Draw, shape: tuple[int, ...], width: int, ignore_index: int) -> Tensor:
    """int64; some are ignored, sometimes all. (One outside of the columns is an error.)"""
    targets = draw.integers(shape, 0, width - 1)
    share = draw.choice((0.0, 0.0, 0.2, 0.9, 1.0 if draw.chance(0.2) else 0.1))
    return targets.masked_fill(draw.uniform(shape) < share, ignore_index)


def in_dtype(draw: Draw, targets: Placed) -> Placed:
    """As int64 or int32."""
    if draw.chance(0.6):
        return targets
    return Placed(targets.values.int(), targets.strides)


def incoming_gradient(draw: Draw, options: Options, ignored: Tensor, dtype: torch.dtype) -> Placed:
    """Of the loss: often 1. An ignored row's may be anything: its gradient is 0."""
    kind = FP64 if dtype == FP64 else FP32
    shape = ignored.shape if options.reduction == "none" else ()
    which = draw.choice(("one", "one", "power", "number", "normal"))
    values = torch.ones(shape, dtype=kind, device=draw.device)
    if which == "power":
        values = values * 2.0 ** draw.integer(-4, 9)
    elif which == "number":
        values = values * draw.random.uniform(0.1, 300.0)
    elif which == "normal":
        values = draw.normal(shape).to(kind)
    if shape and draw.chance(0.3):
        values = values.masked_fill(ignored, draw.choice((math.nan, math.inf)))
        return draw.place(values)
    return draw.place(values, expand=True)


# ---- References ---------------------------------------------------------------------------------


class Rows:
    """The rows of logits [..., V], in float64, and their sums.

    Args:
        options: As the op got them.
        x: The logits.
        targets: As the op got them.
        kernel: Whether a kernel computes them.
        dtype: Of the op's tensors.
        slack: By how much each logit is off already.
        generic: Whether it is so independently of the others.
    """

    def __init__(
        self,
        options: Options,
        x: Tensor,
        targets: Tensor,
        kernel: bool,
        dtype: torch.dtype,
        slack: Tensor | float = 0.0,
        generic: bool = False,
    ) -> None:
        self.options, self.arithmetic = options, Arithmetic.of(dtype)
        self.targets, self.width, u = targets, x.shape[-1], self.arithmetic.unit
        self.ignored = targets == options.ignore_index
        x = x.masked_fill(self.ignored.unsqueeze(-1), 0.0)
        self.top = x.amax(-1, keepdim=True)
        below = x - self.top
        self.kernel = kernel
        # Torch's ops take distances from the largest logit, which may be infinite.
        self.free = self.top.isfinite() & (self.top.abs() > self.arithmetic.most) & (not kernel)
        e = below.exp()
        self.total = e.sum(-1, keepdim=True)
        self.lse = self.top + self.total.log()
        self.p, self.x = e / self.total, x
        self.column = targets.long().clamp(0, self.width - 1).unsqueeze(-1)
        self.slack = torch.as_tensor(slack, dtype=FP64, device=x.device).expand_as(x)
        own = torch.where(e > 0, 4 * u * (2 + below.abs()), 0.0)  # what is 0 stays 0
        self.eta = own + self.slack
        spread = (self.p * own.expm1()).sum(-1, keepdim=True)
        spread = spread + walk(1.0, self.p * self.slack.expm1(), -1, generic).unsqueeze(-1)
        self.off = spread + self.arithmetic.sum(self.width) + 64 * u  # of Σ e, relatively

    def loss(self) -> Judged:
        o, a, u = self.options, self.arithmetic, self.arithmetic.unit
        sharp, smooth = 1 - o.label_smoothing, o.label_smoothing / self.width
        lse, picked = self.lse, self.x.gather(-1, self.column)
        lse_error = self.off + 4 * u * (1 + lse.abs())
        want = lse - sharp * picked if sharp > 0 else lse.clone()
        error = lse_error + 4 * u * picked.abs() + sharp * self.slack.gather(-1, self.column)
        if smooth > 0:
            plain = self.x.abs().sum(-1, keepdim=True)
            want = want - smooth * self.x.sum(-1, keepdim=True)
            error = error + smooth * (
                (a.sum(self.width) + 4 * u) * plain + self.slack.sum(-1, keepdim=True)
            )
            if not self.kernel:
                error = torch.where(plain > a.most, math.inf, error)
        if o.z_loss > 0:
            want = want + o.z_loss * lse.square()
            error = error + o.z_loss * (2 * lse.abs() * lse_error + 8 * u * lse.square())
            error = torch.where(lse.square() > a.most, math.inf, error)
        want, error = self._of_rows(want, error)
        if o.reduction == "none":
            return Judged(want, error)
        counts = (~self.ignored).sum().double() if o.reduction == "mean" else 1.0
        error = error.sum() + a.sum(want.numel()) * want.abs().sum()
        error = torch.where(want.abs().sum() > a.most, math.inf, error)
        total = want.sum() / counts
        return Judged(total, error / counts + 4 * u * total.abs() + a.tiny)

    def _of_rows(self, want: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """Of [..., 1], with 0 for ignored rows, and NaN where a row has no sum."""
        error = torch.where(self.free, math.inf, error.nan_to_num(math.inf, math.inf))
        undefined = ~self.top.isfinite()
        want, error = want.masked_fill(undefined, math.nan), error.masked_fill(undefined, 0.0)
        # −inf as the target's logit: the loss is +inf; 0 · ∞ where the target has no weight.
        lost = self.x.gather(-1, self.column) == -math.inf
        if self.options.label_smoothing == 1.0:
            error = torch.where(lost, math.inf, error)
        want, error = want.squeeze(-1), error.squeeze(-1)
        error = torch.where(want.isinf() & ~lost.squeeze(-1), 0.0, error)
        return want.masked_fill(self.ignored, 0.0), error.masked_fill(self.ignored, 0.0)

    def gradient_of_logits(self) -> tuple[Tensor, Tensor]:
        """As if the loss's own gradient were 1, and nothing were divided; with its error."""
        o, u = self.options, self.arithmetic.unit
        sharp, smooth = 1 - o.label_smoothing, o.label_smoothing / self.width
        weight, weight_error = torch.ones_like(self.lse), torch.zeros_like(self.lse)
        if o.z_loss > 0:
            weight = 1 + 2 * o.z_loss * self.lse
            weight_error = 2 * o.z_loss * (self.off + 8 * u * self.lse.abs()) + 4 * u
        hit = torch.zeros_like(self.p).scatter_(-1, self.column, 1.0)
        scaled = (self.p * weight).abs()
        relative = (self.eta + self.off + 16 * u).expm1()
        error = scaled * relative + self.p * weight_error * (1 + relative)
        error = error + 4 * u * (scaled + sharp * hit + smooth)
        error = error + self.arithmetic.tiny * (weight.abs() + 1)  # exponentials that are flushed
        want = self.p * weight - sharp * hit - smooth
        bound = torch.where(self.free, math.inf, error.nan_to_num(math.inf, math.inf))
        undefined = ~self.top.isfinite()
        want, bound = want.masked_fill(undefined, math.nan), bound.masked_fill(undefined, 0.0)
        ignored = self.ignored.unsqueeze(-1)
        return want.masked_fill(ignored, 0.0), bound.masked_fill(ignored, 0.0)

    def factor(self, dloss: Tensor) -> Tensor:
        """What a row's gradient is multiplied by, [..., 1]; 0 of ignored rows, as theirs."""
        counts = (~self.ignored).sum().double() if self.options.reduction == "mean" else 1.0
        factor = (dloss.double() / counts).expand(self.ignored.shape)
        return factor.masked_fill(self.ignored, 0.0).unsqueeze(-1)

    def gradient(self, dloss: Tensor, dtype: torch.dtype) -> Judged:
        """Rounded by the forward, as if dloss were 1, and again once it is multiplied."""
        want, error = self.gradient_of_logits()
        factor, given = self.factor(dloss), dloss.double().abs()
        given = given.nan_to_num(0.0, 0.0) if given.dim() == 0 else given.unsqueeze(-1)
        want, error = want * factor, error * factor.abs()
        info = torch.finfo(dtype)
        once = info.eps / 2 * (want.abs() + error)
        twice = info.eps / 2 * (want.abs() + error + once)
        step = info.smallest_normal * info.eps
        several = torch.where(self.ignored.unsqueeze(-1), 0.0, 1.0 + given)
        several = several.masked_fill(self.ignored.unsqueeze(-1), 0.0)
        bound = error + once + twice + 4 * self.arithmetic.unit * want.abs() + step * several
        return Judged(want, bound.masked_fill(self.ignored.unsqueeze(-1), 0.0))
