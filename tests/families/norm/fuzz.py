"""layer_norm, rms_norm, add_layer_norm and add_rms_norm.

Their formulas in running error analysis (arithmetic.py). Two things are conditioned worse than the
formulas show:

- x − mean. torch's mean is off by roundings of mean |x|. The kernels take the mean about a number m
  near it, x − m being exact, and correct it by mean(x − m), so that only mean |x − m| counts; and m
  itself may be the mean of a part of the row, 256 elements at least, so that the mean of (x − m)²
  is up to 1 + N / 256 times the variance.
- The backward computes x − mean again from the mean in float32: off by a rounding of the mean.
  torch's own, for layer_norm, takes x · b − mean · b apart: two more roundings of x · b.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

import thunderkittens
from tests.families.norm.fuzz_philox import dropout_factors
from tests.fuzz.arithmetic import Arithmetic, Number
from tests.fuzz.case import Case, Judged, Tensors, describe, dtype_name
from tests.fuzz.draw import BF16, DTYPES, FP16, FP32, FP64, Draw

OPS = ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm")
HEAD = 256  # elements of a row of 16 bits whose mean the kernels take for the row's


@dataclasses.dataclass(frozen=True)
class Options:
    """What the norms of a case have in common."""

    op: str
    dtype: torch.dtype
    eps: float
    kernel: bool
    weight_offset: float = 0.0
    casting: str = "llama"
    dropout_p: float = 0.0
    training: bool = True

    @property
    def centred(self) -> bool:
        return "layer" in self.op

    @property
    def adds(self) -> bool:
        return self.op.startswith("add")

    def keywords(self) -> dict:
        """As the op takes them."""
        given: dict = {"eps": self.eps}
        if not self.centred:
            given |= {"weight_offset": self.weight_offset, "casting": self.casting}
        if self.adds:
            given |= {"dropout_p": self.dropout_p, "training": self.training}
        return given


def make(draw: Draw, op: str) -> Case:
    dtype = draw.weighted(DTYPES)
    elements = draw.elements()
    width = draw.size(min(elements, 1 << 16 if draw.chance(0.2) else 8192))
    if draw.large and draw.chance(0.01):
        width = draw.choice((65536, 65537, 65535, 16385, 8193))
    shape = (*draw.leading(max(1, elements // width)), width)
    if draw.chance(0.02):
        shape = draw.choice(((0, 8), (1,), (2, 0, 5)))
    options = drawn_options(draw, op, dtype, width)

    regime = draw.regime()
    inputs = {"x": draw.place(draw.values(shape, dtype, regime), expand=True)}
    if draw.chance(0.04) and inputs["x"].view.numel():
        spoilt = inputs["x"].values.clone().contiguous()
        spoilt.view(-1)[draw.integer(0, spoilt.numel() - 1)] = math.nan
        inputs["x"] = draw.place(spoilt)
    if options.adds:
        wide = draw.choice((dtype, FP32)) if dtype in (FP16, BF16) else dtype
        kind = draw.choice(("normal", "normal", "offset", "sparse", "constant rows", regime))
        inputs["residual"] = draw.place(draw.values(shape, wide, kind), expand=True)
    for name in ("weight", "bias") if options.centred else ("weight",):
        if draw.chance(0.7):
            kind = draw.choice((dtype, FP32)) if dtype in (FP16, BF16) else dtype
            values = draw.values((shape[-1],), kind, draw.choice(("normal", "normal", "sparse")))
            inputs[name] = draw.place(values, expand=True)
    if options.adds and options.dropout_p > 0:
        inputs["seed"] = draw.place(draw.bits(()) - (1 << 62))

    leaves = tuple(n for n in inputs if n != "seed" and draw.chance(0.75))
    kinds = ("normal", "normal", "constant", "sparse", "mixed rows", "one-hot")
    incoming = {}
    if leaves:
        incoming["y"] = draw.place(draw.values(shape, dtype, draw.choice(kinds)), expand=True)
        if options.adds and draw.chance(0.6):
            other = inputs["residual"].view.dtype
            dsum = draw.values(shape, other, draw.choice(kinds))
            incoming["sum"] = draw.place(dsum, expand=True)

    def call(tensors: Tensors) -> Tensors:
        results = getattr(thunderkittens, op)(**tensors, **options.keywords())
        return dict(zip(("y", "sum"), results, strict=True)) if options.adds else {"y": results}

    def judge(results: Tensors) -> dict[str, Judged]:
        judged = references(options, inputs, incoming, results)
        return {name: each for name, each in judged.items() if name in results}

    title = describe(
        dtype=dtype_name(dtype),
        shape=list(shape),
        strides=[(p.strides, p.view.storage_offset() - p.guard) for p in inputs.values()],
        regime=regime,
        inputs=",".join(inputs),
        leaves=",".join(leaves),
        dsum="sum" in incoming,
        **options.keywords(),
    )
    return Case(title, inputs, call, judge, leaves, incoming)


def drawn_options(draw: Draw, op: str, dtype: torch.dtype, width: int) -> Options:
    kernel = draw.kernels and dtype != FP64 and width <= 1 << 16
    return Options(
        op,
        dtype,
        eps=draw.choice((1e-5, 1e-6, 1e-3, 0.0, 1.0)),
        kernel=kernel,
        weight_offset=draw.choice((0.0, 0.0, 1.0, -0.5)),
        casting=draw.choice(("llama", "llama", "gemma")),
        dropout_p=draw.choice((0.0, 0.0, 0.1, 0.5, 0.9)),
        training=draw.chance(0.8),
    )


# ---- References ---------------------------------------------------------------------------------


def references(options: Options, inputs: dict, incoming: dict, results: Tensors) -> dict:
    """All results, from the tensors as the op got them."""
    if results["y"].numel() == 0:
        return {
            n: Judged(torch.zeros_like(t).double(), torch.zeros_like(t).double())
            for n, t in results.items()
        }
    rows = Rows(options, {n: p.values for n, p in inputs.items()})
    judged = {"y": rows.forward()}
    if options.adds:
        total, lost = rows.s.rounded(results["sum"].dtype), inputs["x"].values.isnan()
        judged["sum"] = Judged(total.value.masked_fill(lost, math.nan), total.error)
    if incoming:
        saved = results["sum"].double() if options.adds else None
        given = {n: p.values for n, p in incoming.items()}
        judged |= rows.backward(given["y"], given.get("sum"), saved)
    return judged


class Rows:
    """The rows of one call, and what is known of each."""

    def __init__(self, options: Options, tensors: Tensors) -> None:
        self.options, self.tensors = options, tensors
        self.arithmetic = a = Arithmetic.of(options.dtype)
        x = tensors["x"]
        # NaN spoils its row, and counts as 0 meanwhile.
        self.spoilt = x.isnan().any(-1, keepdim=True)
        self.s = Number(a, x.double().masked_fill(x.isnan(), 0.0))
        self.factor: Tensor | None = None
        if "seed" in tensors and options.training and options.dropout_p > 0:
            inverse = 1.0 / (1.0 - options.dropout_p)
            scale = inverse if options.dtype == FP64 else float(torch.tensor(inverse).float())
            self.factor = dropout_factors(x.shape, options.dropout_p, tensors["seed"]) * scale
            self.s = self.s * self.factor
        if options.adds:
            self.s = self.s + tensors["residual"].double()
        width = x.shape[-1]
        weight = tensors.get("weight")
        self.weight = Number(a, torch.ones(width, dtype=FP64, device=x.device))
        if weight is not None:
            offset = 0.0 if options.centred else options.weight_offset
            self.weight = Number(a, weight.double()) + offset
        self._take_statistics(width)

    def _take_statistics(self, width: int) -> None:
        a, s = self.arithmetic, self.s
        if not self.options.centred:
            self.centred, self.mean = s, 0.0
            self.rstd = ((s * s).mean() + self.options.eps).rsqrt()
            return
        mean = s.mean()
        wide = s.value - mean.value
        variance = wide.square().mean(-1, keepdim=True)
        part = 1 + width / HEAD if self.options.dtype in (FP16, BF16) else 1.0
        near = (variance * part).sqrt()  # root mean square of x − m, at most
        far = s.value.abs().mean(-1, keepdim=True)
        exact = a.sum(width) * (near + 2 * a.sum(width) * far) + a.unit * (wide.abs() + near)
        if not self.options.kernel:
            exact = exact + mean.error
            # Its sums of squares begin at 0, not at the mean.
            overflows = s.value.square().sum(-1, keepdim=True) > a.most
            exact = torch.where(overflows, math.inf, exact)
        moved = s.error + s.error.mean(-1, keepdim=True)
        error = torch.where(mean.error == math.inf, math.inf, exact + moved)
        self.mean = mean.value
        self.centred = Number(a, wide, error)
        squares = (self.centred * self.centred).mean()
        squares = squares.plus((a.sum(width) + 4 * a.unit) * (part - 1) * variance)
        self.rstd = (squares + self.options.eps).rsqrt()

    def judged(self, x: Number, whole: bool = False) -> Judged:
        """With NaN in the rows that are spoilt, or everywhere in what is summed over them."""
        spoilt = self.spoilt.any() if whole else self.spoilt
        bound = x.error.nan_to_num(math.inf, math.inf)
        return Judged(x.value.masked_fill(spoilt, math.nan), bound.masked_fill(spoilt, 0.0))

    def forward(self) -> Judged:
        dtype = self.options.dtype
        normal = self.centred * self.rstd
        if not self.options.centred and self.options.casting == "llama":
            normal = normal.rounded(dtype)
        y = normal * self.weight
        if self.options.centred and "bias" in self.tensors:
            y = y + self.tensors["bias"].double()
        return self.judged(y.rounded(dtype))

    def backward(self, dy: Tensor, dsum: Tensor | None, saved: Tensor | None) -> dict[str, Judged]:
        """`saved`: the sum as the op returned it, of which it makes the values."""
        a, dtype = self.arithmetic, self.options.dtype
        centred = self.centred.plus(2 * a.unit * torch.as_tensor(self.mean).abs())
        if saved is not None:
            # Values of the saved sum, which the op rounded; rstd of the exact one, mean of either.
            saved = saved.masked_fill(self.spoilt, 0.0)
            own = centred.error - self.s.error
            error = torch.where(own.isfinite(), own.clamp(min=0.0), math.inf)
            if self.options.centred:
                error = error + self.s.error.mean(-1, keepdim=True)
                error = error + (saved.mean(-1, keepdim=True) - self.mean).abs()
            centred = Number(a, saved - self.mean, error + a.unit * saved.abs())
        normal = centred * self.rstd
        d = Number(a, dy.double())
        g = d * self.weight
        along = (g * normal).mean()
        inner = g - normal * along
        if self.options.centred:
            inner = inner - g.mean()
        ds = self.rstd * inner
        if self.options.centred and not self.options.kernel:
            ds = ds.plus(self._torch_cancels(g, along))
        if dsum is not None:
            ds = ds + dsum.double()
        results = {}
        if self.options.adds:
            kind = self.tensors["residual"].dtype
            results["dresidual"] = self.judged(ds.rounded(kind))
            ds = ds if self.factor is None else ds * self.factor
        results["dx"] = self.judged(ds.rounded(dtype))
        dims = tuple(range(dy.dim() - 1))
        for name, terms in (("weight", d * normal), ("bias", d)):
            if name in self.tensors:
                total = terms.sum(dims) if dims else terms
                of_rows = name == "weight"
                total = total.rounded(self.tensors[name].dtype)
                results[f"d{name}"] = self.judged(total, True) if of_rows else _plain(total)
        return results

    def _torch_cancels(self, g: Number, along: Number) -> Tensor:
        """Of torch's layer norm: b = (mean Σ g − Σ g x) · rstd³ / N, then x · b − mean · b.

        (This is x̂ · mean(g x̂) · rstd, taken apart.)
        """
        a, s = self.arithmetic, self.s.value.abs()
        rstd, mean = self.rstd.value, torch.as_tensor(self.mean).abs()
        sizes = (g.value.abs() * (s + mean)).mean(-1, keepdim=True)
        b_error = a.sum(s.shape[-1]) * sizes * rstd**3
        b = along.value.abs() * rstd.square() + b_error
        return b_error * self.centred.value.abs() + 4 * a.unit * b * (s + mean)


def _plain(x: Number) -> Judged:
    return Judged(x.value, x.error.nan_to_num(math.inf, math.inf))
