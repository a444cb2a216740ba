"""Whether results are right; and whether a wrong one would be noticed."""

from __future__ import annotations

import dataclasses
import math
import random

import torch
from torch import Tensor

from tests.fuzz.case import Judged, Tensors
from thunderkittens.testing import tolerance

SPOILT = 0.025  # of its size, or of its row's: what the control changes an element by
CANDIDATES = 16


def right(got: Tensor, judged: Judged) -> Tensor:
    """Which elements are right, as bools.

    Within the bound; or a NaN where one must be; or an infinity where the dtype of the result ends:
    numbers from max · (1 + eps / 4) on, half a step above the largest, round to infinity.
    """
    g, want, bound = got.double(), judged.want, judged.bound
    info = torch.finfo(got.dtype)
    least_infinite = info.max * (1 + info.eps / 4)
    beyond = g.isinf() & (g.sign() * want + bound >= least_infinite)
    same = (g == want) | (g.isnan() & want.isnan())
    return ((g - want).abs() <= bound) | same | beyond | (bound == math.inf)


def lost_to_underflow(dtype: torch.dtype) -> float:
    """What a factor of a term may lose near zero, on the way from inputs of a dtype to a result.

    A decay below the normal numbers of float32, or of float64 for its own, may be 0; and what is
    rounded to the dtype for a product is off by half of its smallest number.
    """
    inner = torch.float64 if dtype == torch.float64 else torch.float32
    return tolerance.floor(dtype) + torch.finfo(inner).smallest_normal


def brought_back(dtype: torch.dtype) -> float:
    """What rows of a recurrence by chunks are multiplied by at last, at most.

    In bf16, where a chunk decays by no more than 2^-32, its scores and its state are decayed to its
    end, and rows brought back from there (`takes_factors`): what is lost near zero, before that,
    becomes as much larger.
    """
    return 2.0**32 if dtype == torch.bfloat16 else 1.0


@dataclasses.dataclass
class Verdicts:
    """Names and bools on the device, which are read all at once."""

    names: list[str] = dataclasses.field(default_factory=list)
    flags: list[Tensor] = dataclasses.field(default_factory=list)

    def add(self, name: str, flag: Tensor | bool) -> None:
        self.names.append(name)
        self.flags.append(torch.as_tensor(flag))

    def failed(self) -> list[str]:
        if not self.flags:
            return []
        device = max((f.device for f in self.flags), key=lambda d: d.type)
        read = torch.stack([f.to(device, non_blocking=True) for f in self.flags]).tolist()
        return [name for name, good in zip(self.names, read, strict=True) if not good]


def explain(name: str, got: Tensor, judged: Judged) -> str:
    """The worst element of a result that is wrong."""
    bad = ~right(got, judged)
    error = (got.double() - judged.want).abs()
    excess = torch.where(bad, (error / judged.bound).nan_to_num(math.inf, math.inf), -1.0)
    worst = int(excess.argmax())
    place = [int(i) for i in torch.unravel_index(torch.tensor(worst), got.shape)]
    at = [float(t.expand(got.shape).flatten()[worst]) for t in (got, judged.want, judged.bound)]
    return (
        f"{name}{place} = {at[0]:.9g}, want {at[1]:.9g}, allowed error {at[2]:.3g} "
        f"({int(bad.sum())} of {bad.numel()} are wrong)"
    )


def control(seed: str, results: Tensors, judged: dict[str, Judged]) -> bool | None:
    """Whether one spoilt element of the results would be noticed; None where none can be spoilt.

    An element, of a result that is drawn, is changed by 2.5 % of the larger of its own size and the
    root mean square of its row (its last dimension). Elements that are not numbers, or stand in a
    row of zeros, or are so small that the change is lost in rounding cannot be spoilt; one that
    may be anything can, and is not noticed.
    """
    chooser = random.Random(f"control:{seed}")
    names = [name for name, each in judged.items() if each.want.numel()]
    chooser.shuffle(names)
    for name in names:
        got, each = results[name], judged[name]
        shape = got.shape if got.dim() else (1,)
        width = shape[-1]
        rows = [t.expand(got.shape).reshape(-1, width) for t in (got, each.want, each.bound)]
        index = [chooser.randrange(got.numel()) for _ in range(CANDIDATES)]
        at = torch.tensor(index, device=got.device)
        g, want, bound = (t[at // width] for t in rows)
        own = [t.gather(-1, (at % width)[:, None]).squeeze(-1) for t in (g, want, bound)]
        finite = torch.where(want.isfinite(), want, 0.0)
        scale = torch.maximum(own[1].abs(), finite.square().mean(-1).sqrt())
        sign = chooser.choice((-1, 1))
        spoilt = (own[0].double() + sign * SPOILT * scale).to(got.dtype)
        noticed = ~right(spoilt, Judged(own[1], own[2]))
        able = own[0].isfinite() & own[1].isfinite() & spoilt.isfinite() & (spoilt != own[0])
        # What a narrow dtype cannot show near zero is no spoilt element.
        shown = (spoilt.double() - own[0].double()).abs() >= 0.5 * SPOILT * scale
        picked = torch.stack([able & shown & (scale > 0), noticed]).tolist()
        for can, was in zip(*picked, strict=True):
            if can:
                return was
    return None
