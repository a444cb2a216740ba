"""The references of the norms and their bounds."""

import torch
from torch import Tensor

from thunderkittens.testing._rounding import accumulation, floor, unit


def layer_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    statistics: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """The reference of layer_norm and its bound, both float64, on x's device.

    Args:
        x: [..., N], as the op got it.
        weight: [N] or None.
        bias: [N] or None.
        eps: As the op got it.
        statistics: The dtype the op computes in (float64 for float64).

    Returns:
        y and the largest allowed error, both [..., N].
    """
    x64, w, b = x.double(), _as_double(weight, 1.0, x), _as_double(bias, 0.0, x)
    normal, _, condition = _normalise(x64, eps)
    y = normal * w + b
    slack = accumulation(x.shape[-1], statistics) * (1 + condition) * w.abs() * (1 + normal.abs())
    u = unit(x.dtype)
    return y, 2 * u * (y.abs() + w.abs()) + slack + 4 * unit(statistics) * b.abs() + floor(x.dtype)


def layer_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    statistics: torch.dtype = torch.float32,
) -> list[tuple[Tensor, Tensor]]:
    """The references of dx, dweight, dbias, each with its bound; arguments as in `layer_norm`."""
    x64, w, d = x.double(), _as_double(weight, 1.0, x), dy.double()
    normal, rstd, condition = _normalise(x64, eps)
    row = accumulation(x.shape[-1], statistics) * (1 + condition)
    g = d * w
    dx, size = _gradient(g, normal, rstd, centred=True)
    bounds = [(dx, 2 * unit(x.dtype) * dx.abs() + row * size + floor(x.dtype))]
    for terms, spread, parameter in (
        (d * normal, row * d.abs() * (1 + normal.abs()), weight),
        (d, 0 * d, bias),
    ):
        dtype = x.dtype if parameter is None else parameter.dtype
        bounds.append(_parameter_gradient(terms, spread, dtype, statistics))
    return bounds


def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    weight_offset: float = 0.0,
    casting: str = "llama",
    statistics: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """The reference of rms_norm and its bound, both float64; arguments as in `layer_norm`.

    Args:
        x: [..., N], as the op got it.
        weight: [N] or None.
        eps: As the op got it.
        weight_offset: As the op got it.
        casting: As the op got it: "llama" rounds twice.
        statistics: The dtype the op computes in (float64 for float64).

    Returns:
        y and the largest allowed error, both [..., N].
    """
    w = _scale(weight, weight_offset, x)
    y = _rms_normalise(x.double(), eps)[0] * w
    return y, _rms_bound(y, w, x.dtype, casting, accumulation(x.shape[-1], statistics))


def rms_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    weight_offset: float = 0.0,
    statistics: torch.dtype = torch.float32,
) -> list[tuple[Tensor, Tensor]]:
    """The references of dx and dweight, each with its bound; arguments as in `rms_norm`."""
    normal, rstd = _rms_normalise(x.double(), eps)
    row = accumulation(x.shape[-1], statistics)
    dx, size = _gradient(dy.double() * _scale(weight, weight_offset, x), normal, rstd, False)
    dtype = x.dtype if weight is None else weight.dtype
    return [
        (dx, 2 * unit(x.dtype) * dx.abs() + row * size + floor(x.dtype)),
        _parameter_gradient(
            dy.double() * normal, row * (dy.double() * normal).abs(), dtype, statistics
        ),
    ]


def add_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    factor: Tensor | float = 1.0,
    centred: bool = True,
    weight_offset: float = 0.0,
    casting: str = "llama",
    statistics: torch.dtype = torch.float32,
) -> list[tuple[Tensor, Tensor]]:
    """The references of y and sum of add_layer_norm (`centred`) or add_rms_norm, with their bounds.

    Args:
        x: [..., N], as the op got it.
        residual: The same shape.
        weight: [N] or None.
        bias: [N] or None.
        eps: As the op got it.
        factor: What dropout multiplies x by.
        centred: Whether the norm has a mean.
        weight_offset: As the op got it.
        casting: As the op got it.
        statistics: The dtype the op computes in (float64 for float64).
    """
    scaled, other = x.double() * factor, residual.double()
    total = scaled + other
    lost = 4 * unit(statistics) * (scaled.abs() + other.abs())  # of the sum in float
    row = accumulation(x.shape[-1], statistics)
    if centred:
        w, b = _as_double(weight, 1.0, x), _as_double(bias, 0.0, x)
        normal, rstd, condition = _normalise(total, eps)
        y = normal * w + b
        bound = 2 * unit(x.dtype) * (y.abs() + w.abs()) + floor(x.dtype)
        bound = bound + row * (1 + condition) * w.abs() * (1 + normal.abs())
        bound = bound + 4 * unit(statistics) * b.abs()
    else:
        w = _scale(weight, weight_offset, x)
        normal, rstd = _rms_normalise(total, eps)
        y = normal * w
        bound = _rms_bound(y, w, x.dtype, casting, row)
    shift = lost + lost.mean(-1, keepdim=True)
    shift = shift + normal.abs() * (lost * normal.abs()).mean(-1, keepdim=True)
    of_sum = 2 * unit(residual.dtype) * total.abs() + lost + floor(residual.dtype)
    return [(y, bound + w.abs() * rstd * shift), (total, of_sum)]


def add_norm_backward(
    dy: Tensor,
    dsum: Tensor | None,
    x: Tensor,
    residual: Tensor,
    saved: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    factor: Tensor | float = 1.0,
    centred: bool = True,
    weight_offset: float = 0.0,
    statistics: torch.dtype = torch.float32,
) -> list[tuple[Tensor, Tensor]]:
    """The references of dx, dresidual, dweight, dbias, with bounds; arguments as in `add_norm`.

    The statistics are those of the exact sum, the values those of the `saved` one, which is what
    the op returned. `dsum`: the gradient that arrives at the sum, or None.
    """
    total, d = x.double() * factor + residual.double(), dy.double()
    g = d * _scale(weight, weight_offset, x)
    row: Tensor | float = accumulation(x.shape[-1], statistics)
    if centred:
        _, rstd, condition = _normalise(total, eps)
        normal = (saved.double() - total.mean(-1, keepdim=True)) * rstd
        row = row * (1 + condition)
        # The saved values have another mean than the exact ones, by the roundings of either.
        moved = 2 * unit(saved.dtype) * total.abs().mean(-1, keepdim=True) * rstd
    else:
        _, rstd = _rms_normalise(total, eps)
        normal, moved = saved.double() * rstd, torch.zeros_like(rstd)
    ds, size = _gradient(g, normal, rstd, centred)
    slack = row * size + rstd * moved * (
        (g * normal).mean(-1, keepdim=True).abs()
        + (1 + normal.abs()) * g.abs().mean(-1, keepdim=True)
    )
    if dsum is not None:
        ds = ds + dsum.double()
        slack = slack + 2 * unit(statistics) * dsum.double().abs()
    dx = ds * factor
    results = [
        (dx, 2 * unit(x.dtype) * dx.abs() + slack * factor + row * dx.abs() + floor(x.dtype)),
        (ds, 2 * unit(residual.dtype) * ds.abs() + slack + floor(residual.dtype)),
    ]
    spread = d.abs() * (row * (1 + normal.abs()) + moved)
    for terms, each, parameter in ((d * normal, spread, weight), (d, 0 * d, bias)):
        dtype = x.dtype if parameter is None else parameter.dtype
        results.append(_parameter_gradient(terms, each, dtype, statistics))
    return results


def _normalise(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x − mean) · rstd, rstd, and how much a relative error of the mean is amplified."""
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    rstd = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    return centred * rstd, rstd, x.abs().mean(-1, keepdim=True) * rstd


def _rms_normalise(s: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """S · rstd and rstd."""
    rstd = (s.square().mean(-1, keepdim=True) + eps).rsqrt()
    return s * rstd, rstd


def _rms_bound(y: Tensor, w: Tensor, dtype: torch.dtype, casting: str, row: float) -> Tensor:
    """Of y = normal · w, which is rounded once, or twice."""
    roundings = 2 if casting == "llama" else 1
    return (2 * roundings * unit(dtype) + 2 * row) * y.abs() + floor(dtype) * (1 + w.abs())


def _gradient(g: Tensor, normal: Tensor, rstd: Tensor, centred: bool) -> tuple[Tensor, Tensor]:
    """The gradient of a norm's input, and the size of what is added up in it."""
    mean_g = g.mean(-1, keepdim=True) if centred else 0.0
    gradient = rstd * (g - mean_g - normal * (g * normal).mean(-1, keepdim=True))
    size = g.abs() + (1 + normal.abs()) * (g.abs() * (1 + normal.abs())).mean(-1, keepdim=True)
    return gradient, rstd * (size + g.abs().mean(-1, keepdim=True))


def _parameter_gradient(
    terms: Tensor, spread: Tensor, dtype: torch.dtype, statistics: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """The sum of the terms over all rows; `spread` is what each of them is off by."""
    width = terms.shape[-1]
    rows = accumulation(terms.numel() // max(1, width), statistics)
    total = terms.reshape(-1, width).sum(0)
    slack = (spread + rows * terms.abs()).reshape(-1, width).sum(0)
    return total, 2 * unit(dtype) * total.abs() + slack + floor(dtype)


def _scale(weight: Tensor | None, offset: float, x: Tensor) -> Tensor:
    return _as_double(weight, 1.0, x) + (0.0 if weight is None else offset)


def _as_double(parameter: Tensor | None, otherwise: float, x: Tensor) -> Tensor:
    if parameter is not None:
        return parameter.double()
    return torch.full((x.shape[-1],), otherwise, dtype=torch.float64, device=x.device)
