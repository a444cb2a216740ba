"""How far a result may be from float64, derived from dtype and reduction length and never tuned.

Each bound is a tensor: it comes from the same formula on absolute values, so it grows where the
problem itself is badly conditioned and nowhere else.
"""

import math

import torch
from torch import Tensor

ROW_LENGTH = 32  # rows at least this long are also judged as a whole
ROW_FRACTION = 0.75  # of the bound's root mean square: rounding errors do not all have one size


def unit(dtype: torch.dtype) -> float:
    """Half the distance of 1 to the number before it: 2⁻⁹ for bfloat16, 2⁻¹² for float16.

    Rounding to nearest is off by at most 2 · unit · |value|.
    """
    return torch.finfo(dtype).eps / 4


def floor(dtype: torch.dtype) -> float:
    """The smallest positive number of a dtype: what rounding may lose near zero."""
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def accumulation(length: int, dtype: torch.dtype = torch.float32) -> float:
    """Relative error of a sum of `length` terms of mixed rounding errors, added up in any order."""
    return torch.finfo(dtype).eps / 2 * (8 + 2 * math.sqrt(length))


def assert_close(
    got: Tensor,
    want: Tensor,
    bound: Tensor | float,
    name: str = "result",
    shared: Tensor | float = 0.0,
) -> None:
    """Asserts that a result is within its bound of the reference, by element and by row.

    Args:
        got: What was computed, any floating dtype.
        want: The reference in float64, same shape.
        bound: The largest allowed error, broadcastable to `want`.
        name: For the message.
        shared: The part of `bound` for errors that all elements of a row may have in common, as
            where one of the factors of each is the same number, rounded once.

    Raises:
        AssertionError: The shapes differ; NaN or Inf stand at other places (or with another sign);
            or an error is above its bound. It names the worst element.
    """
    assert got.shape == want.shape, f"{name}: shape {list(got.shape)}, want {list(want.shape)}"
    got, want = got.detach().double().cpu(), want.detach().double().cpu()
    bound, shared = (
        torch.as_tensor(b, dtype=torch.float64).cpu().broadcast_to(want.shape)
        for b in (bound, shared)
    )
    _assert_same_places(got.isnan(), want.isnan(), f"{name}: NaN")
    infinite = want.isinf()
    _assert_same_places(got.isinf(), infinite, f"{name}: Inf")
    assert bool((got == want)[infinite].all()), f"{name}: an infinity has the other sign"
    finite = want.isfinite()
    error = torch.where(finite, (got - want).abs(), 0.0)
    bound, shared = torch.where(finite, bound, 1.0), torch.where(finite, shared, 0.0)
    if not bool((error <= bound).all()):
        worst = int((error / bound).nan_to_num(nan=math.inf).argmax())
        place = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), want.shape))
        raise AssertionError(
            f"{name}{list(place)} = {got.flatten()[worst]:.9g}, want {want.flatten()[worst]:.9g}: "
            f"error {error.flatten()[worst]:.3g}, allowed {bound.flatten()[worst]:.3g} "
            f"({int((error > bound).sum())} of {error.numel()} elements are off)"
        )
    _assert_rows(error, bound - shared, shared, name)


def layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, statistics=torch.float32
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
    wide, w, b = x.double(), _wide(weight, 1.0, x), _wide(bias, 0.0, x)
    normal, _, condition = _normalise(wide, eps)
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
    statistics=torch.float32,
) -> list[tuple[Tensor, Tensor]]:
    """The references of dx, dweight, dbias, each with its bound; arguments as in `layer_norm`."""
    wide, w, d = x.double(), _wide(weight, 1.0, x), dy.double()
    normal, rstd, condition = _normalise(wide, eps)
    row = accumulation(x.shape[-1], statistics) * (1 + condition)
    g = d * w
    dx = rstd * (g - g.mean(-1, keepdim=True) - normal * (g * normal).mean(-1, keepdim=True))
    size = rstd * (
        g.abs()
        + g.abs().mean(-1, keepdim=True)
        + (1 + normal.abs()) * (g.abs() * (1 + normal.abs())).mean(-1, keepdim=True)
    )
    bounds = [(dx, 2 * unit(x.dtype) * dx.abs() + row * size + floor(x.dtype))]
    rows = accumulation(d.numel() // max(1, x.shape[-1]), statistics)
    for terms, spread, parameter in (
        (d * normal, (rows + row) * d.abs() * (1 + normal.abs()), weight),
        (d, rows * d.abs(), bias),
    ):
        dtype = x.dtype if parameter is None else parameter.dtype
        total = terms.reshape(-1, x.shape[-1]).sum(0)
        slack = spread.reshape(-1, x.shape[-1]).sum(0)
        bounds.append((total, 2 * unit(dtype) * total.abs() + slack + floor(dtype)))
    return bounds


def attention(o: Tensor, spread: Tensor, dtype: torch.dtype, keys: int, score: float) -> Tensor:
    """The bound of an attention output.

    Args:
        o: The reference, float64.
        spread: softmax @ |v|, the same shape.
        dtype: Of the output; float64 is computed in float64, the rest in float32.
        keys: How many keys a row has.
        score: The largest |q| @ |k| · scale: rounding a score shifts a weight by as much.

    Returns:
        The largest allowed error, o's shape.
    """
    inner = torch.float64 if dtype == torch.float64 else torch.float32
    slack = accumulation(keys, inner) + 8 * unit(inner) * (4 + score)
    return 2 * unit(dtype) * (o.abs() + spread) + slack * spread + floor(dtype)


def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    dloss: Tensor | float = 1.0,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    dtype: torch.dtype | None = None,
    slack: Tensor | float = 0.0,
) -> list[tuple[Tensor, Tensor]]:
    """The references of a loss and of the gradient of its logits, each with its bound.

    A target that is neither ignored nor a column spoils its row.

    Args:
        logits: [..., V], as the op got them.
        targets: [...], likewise.
        dloss: The loss's own gradient, which broadcasts to [...].
        ignore_index: As the op got it, and so on.
        reduction: "mean", "sum" or "none".
        label_smoothing: 0 … 1.
        z_loss: Weight of the squared log-sum-exp.
        dtype: Of the gradient; by default that of the logits.
        slack: How far each logit may already be off, as a product of matrices is.

    Returns:
        The loss, reduced, then the gradient [..., V], which is rounded to `dtype` twice: by the
        forward, and once more after it is multiplied by dloss.
    """
    dtype = dtype or logits.dtype
    inner = torch.float64 if dtype == torch.float64 else torch.float32
    eps, width = torch.finfo(inner).eps, logits.shape[-1]
    x, counts = logits.double(), targets != ignore_index
    column = targets.long().clamp(0, width - 1).unsqueeze(-1)
    hit = torch.zeros_like(x).scatter_(-1, column, 1.0)
    lse = (x - x.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True).log() + x.amax(
        -1, keepdim=True
    )
    outside = (counts & (targets != column.squeeze(-1))).unsqueeze(-1)
    lse = lse.masked_fill(outside, math.nan)
    p, sharp, smooth = (x - lse).exp(), 1 - label_smoothing, label_smoothing / width

    off = torch.as_tensor(slack, dtype=torch.float64, device=x.device).expand_as(x)
    # By how much lse grows where every logit is off upwards, and at most shrinks where downwards.
    shift = (p * off.expm1()).sum(-1, keepdim=True).log1p()
    sums = accumulation(width, inner) + 4 * eps * lse.abs() + shift
    picked = x.gather(-1, column)
    loss = lse - sharp * picked + z_loss * lse.square()
    bound = sums * (1 + 2 * z_loss * lse.abs()) + 4 * eps * (picked.abs() + z_loss * lse.square())
    bound = bound + sharp * off.gather(-1, column)
    if label_smoothing > 0:
        loss = loss - smooth * x.sum(-1, keepdim=True)
        spread = accumulation(width, inner) * x.abs() + off
        bound = bound + smooth * spread.sum(-1, keepdim=True)

    weight = 1 + 2 * z_loss * lse
    gradient = p * weight - sharp * hit - smooth
    exponent = sums + off + 4 * eps * (1 + (x - lse).abs())  # by which that of p is off
    relative = exponent.expm1() + sums * exponent.exp() * 2 * z_loss / weight.abs()
    spread = (p * weight).abs() * torch.where(p > 0, relative, 0.0)
    flushed = torch.finfo(inner).smallest_normal  # exponentials below it may be 0
    spread = spread + flushed * weight.abs() + 4 * eps * (sharp * hit + smooth)
    total = counts.sum().double() if reduction == "mean" else 1.0
    given = torch.as_tensor(dloss, dtype=torch.float64, device=x.device).unsqueeze(-1)
    factor = given / total
    gradient = (gradient * factor).masked_fill(~counts.unsqueeze(-1), 0)
    spread = (spread * factor.abs()).masked_fill(~counts.unsqueeze(-1), 0)

    loss, bound = (t.squeeze(-1).masked_fill(~counts, 0) for t in (loss, bound))
    if reduction != "none":
        bound = (bound.sum() + accumulation(targets.numel(), inner) * loss.abs().sum()) / total
        loss = loss.sum() / total
    rounded = 4 * unit(dtype) * (gradient.abs() + spread) + floor(dtype) * (1 + given.abs())
    return [(loss, bound + 2 * floor(inner)), (gradient, spread + rounded)]


def _normalise(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x − mean) · rstd, rstd, and how much a relative error of the mean is amplified."""
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    rstd = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    return centred * rstd, rstd, x.abs().mean(-1, keepdim=True) * rstd


def _wide(parameter: Tensor | None, otherwise: float, x: Tensor) -> Tensor:
    if parameter is not None:
        return parameter.double()
    return torch.full((x.shape[-1],), otherwise, dtype=torch.float64, device=x.device)


def _assert_same_places(got: Tensor, want: Tensor, what: str) -> None:
    differ = (got != want).nonzero()
    assert len(differ) == 0, (
        f"{what} at {int(got.sum())} places, want {int(want.sum())}; first difference at "
        f"{differ[0].tolist()}"
    )


def _assert_rows(error: Tensor, own: Tensor, shared: Tensor, name: str) -> None:
    """A row whose every element is just inside its own bound is wrong as a whole."""
    if error.dim() == 0 or error.shape[-1] < ROW_LENGTH or error.numel() == 0:
        return

    def size(t: Tensor) -> Tensor:
        return t.square().mean(-1).sqrt()

    got, allowed = size(error), size(shared) + ROW_FRACTION * size(own)
    worst = int((got / allowed).argmax())
    assert bool((got <= allowed).all()), (
        f"{name}: row {worst} has root mean square error {got.flatten()[worst]:.3g}, "
        f"allowed {allowed.flatten()[worst]:.3g}"
    )
