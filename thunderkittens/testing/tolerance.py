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


def assert_close(got: Tensor, want: Tensor, bound: Tensor | float, name: str = "result") -> None:
    """Asserts that a result is within its bound of the reference, by element and by row.

    Args:
        got: What was computed, any floating dtype.
        want: The reference in float64, same shape.
        bound: The largest allowed error, broadcastable to `want`.
        name: For the message.

    Raises:
        AssertionError: The shapes differ; NaN or Inf stand at other places (or with another sign);
            or an error is above its bound. It names the worst element.
    """
    assert got.shape == want.shape, f"{name}: shape {list(got.shape)}, want {list(want.shape)}"
    got, want = got.detach().double().cpu(), want.detach().double().cpu()
    bound = torch.as_tensor(bound, dtype=torch.float64).cpu().broadcast_to(want.shape)
    _assert_same_places(got.isnan(), want.isnan(), f"{name}: NaN")
    infinite = want.isinf()
    _assert_same_places(got.isinf(), infinite, f"{name}: Inf")
    assert bool((got == want)[infinite].all()), f"{name}: an infinity has the other sign"
    finite = want.isfinite()
    error = torch.where(finite, (got - want).abs(), 0.0)
    bound = torch.where(finite, bound, 1.0)
    if not bool((error <= bound).all()):
        worst = int((error / bound).nan_to_num(nan=math.inf).argmax())
        place = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), want.shape))
        raise AssertionError(
            f"{name}{list(place)} = {got.flatten()[worst]:.9g}, want {want.flatten()[worst]:.9g}: "
            f"error {error.flatten()[worst]:.3g}, allowed {bound.flatten()[worst]:.3g} "
            f"({int((error > bound).sum())} of {error.numel()} elements are off)"
        )
    _assert_rows(error, bound, name)


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
    statistics=torch.float32,
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
    statistics=torch.float32,
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
    statistics=torch.float32,
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
        w, b = _wide(weight, 1.0, x), _wide(bias, 0.0, x)
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
    statistics=torch.float32,
) -> list[tuple[Tensor, Tensor]]:
    """The references of dx, dresidual, dweight, dbias, with bounds; arguments as in `add_norm`.

    The statistics are those of the exact sum, the values those of the `saved` one, which is what
    the op returned. `dsum`: the gradient that arrives at the sum, or None.
    """
    total, d = x.double() * factor + residual.double(), dy.double()
    g = d * _scale(weight, weight_offset, x)
    row = accumulation(x.shape[-1], statistics)
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
    shift = (p * off).sum(-1, keepdim=True)  # of lse, by what the logits are off
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
    relative = sums * (1 + 2 * z_loss / weight.abs()) + off + 4 * eps * (1 + (x - lse).abs())
    spread = (p * weight).abs() * torch.where(p > 0, relative, 0.0)
    spread = spread + 4 * eps * (sharp * hit + smooth)
    total = counts.sum().double() if reduction == "mean" else 1.0
    given = torch.as_tensor(dloss, dtype=torch.float64, device=x.device).unsqueeze(-1)
    factor = given / total
    gradient = (gradient * factor).masked_fill(~counts.unsqueeze(-1), 0)
    spread = (spread * factor.abs()).masked_fill(~counts.unsqueeze(-1), 0)

    loss, bound = (t.squeeze(-1).masked_fill(~counts, 0) for t in (loss, bound))
    if reduction != "none":
        bound = (bound.sum() + accumulation(targets.numel(), inner) * loss.abs().sum()) / total
        loss = loss.sum() / total
    rounded = 4 * unit(dtype) * gradient.abs() + floor(dtype) * (1 + given.abs())
    return [(loss, bound + 2 * floor(inner)), (gradient, spread + rounded)]


def rotary(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> tuple[Tensor, Tensor]:
    """The reference of one tensor that rotary turns, and its bound, both float64.

    Args:
        x: [..., S, H, D], as the op got it.
        cos: [..., S, R/2], the row of each token, as the op got it.
        sin: The same; negative for the gradient.
        interleaved: As the op got it.

    Returns:
        The result and the largest allowed error, x's shape. What is not turned is exact.
    """
    c, s, pairs = cos.double().unsqueeze(-2), sin.double().unsqueeze(-2), cos.shape[-1]
    first = slice(0, 2 * pairs, 2) if interleaved else slice(0, pairs)
    second = slice(1, 2 * pairs, 2) if interleaved else slice(pairs, 2 * pairs)
    wide = x.double()
    x1, x2 = wide[..., first], wide[..., second]
    want, bound = wide.clone(), torch.zeros_like(wide)
    # Two products and a sum, in the dtype computed in and again in this reference.
    u = unit(torch.float64 if x.dtype == torch.float64 else torch.float32)
    for place, a, b in ((first, x1 * c, -x2 * s), (second, x1 * s, x2 * c)):
        want[..., place] = a + b
        slack = 8 * u * (a.abs() + b.abs()) + 2 * floor(x.dtype)
        bound[..., place] = 2 * unit(x.dtype) * (a + b).abs() + slack
    return want, bound


def activation(
    x: Tensor, name: str, dtype: torch.dtype = torch.float32, cancels: bool = False
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """silu or gelu in float64, its slope, and what computing them in `dtype` may lose.

    f(x) = x · s with s = σ or Φ. The exponential in s is off by its argument's error, L = −ln s
    times a rounding; all else is a few roundings. Below 2⁻¹²⁶, s may be 0.

    Args:
        x: Any shape.
        name: "silu", "tanh" or "none" (the two gelus, as torch calls them).
        dtype: float32 or float64: what it is computed in. For 16-bit x, float32 with approximations
            that are good to 2⁻¹⁴.
        cancels: Whether it is torch's, which takes 1 + tanh, 1 + erf and 1 − σ.

    Returns:
        (f, its largest error) and (f', its largest error).
    """
    wide = x.double()
    square = wide.square()
    if name == "none":
        s = torch.special.erfc(-wide * math.sqrt(0.5)) / 2
        exponent, bend = square / 2, torch.exp(-square / 2) / math.sqrt(2 * math.pi)
        dz = wide.abs()  # about −(ln Φ)' in its tail
    else:
        root = 2 * math.sqrt(2 / math.pi)
        z = wide if name == "silu" else root * (wide + 0.044715 * wide * square)
        dz = torch.ones_like(z) if name == "silu" else root * (1 + 3 * 0.044715 * square)
        s, rest = torch.sigmoid(z), torch.sigmoid(-z)
        exponent, bend = z.abs(), s * rest * dz
    f, slope, size = wide * s, s + wide * bend, wide.abs()
    eps = torch.finfo(dtype).eps / 2
    relative = eps * 16 + (2**-14 if torch.finfo(x.dtype).bits == 16 else 0.0)
    if name != "silu":
        relative = relative + eps * 4 * exponent.clamp(max=200)
    lost = 2.0**-126 * size
    lost_slope = 2.0**-126 * (1 + size * dz.clamp(max=1e4))
    if cancels:
        lost = lost + 16 * eps * size
        lost_slope = lost_slope + 16 * eps * (1 + size) * (1 + size.clamp(max=10).square())
    return (f, relative * f.abs() + lost), (slope, relative * (s + size * bend) + lost_slope)


def gated(
    gate: Tensor, up: Tensor, name: str, dtype: torch.dtype = torch.float32, cancels: bool = False
) -> tuple[Tensor, Tensor]:
    """The reference of swiglu (name "silu") and geglu, and its bound; `name` … as in `activation`.

    gelu is that of an `up` of ones.
    """
    (f, slack), _ = activation(gate, name, dtype, cancels)
    wide = up.double()
    y = f * wide
    rounding = 2 * unit(gate.dtype) + 2 * unit(dtype)
    return y, rounding * y.abs() + slack * wide.abs() + floor(gate.dtype)


def gated_backward(
    dy: Tensor,
    gate: Tensor,
    up: Tensor,
    name: str,
    dtype: torch.dtype = torch.float32,
    cancels: bool = False,
) -> list[tuple[Tensor, Tensor]]:
    """The references of dgate and dup, each with its bound; arguments as in `gated`."""
    (f, slack), (slope, slack_of_slope) = activation(gate, name, dtype, cancels)
    d, wide = dy.double(), up.double()
    rounding = 2 * unit(gate.dtype) + 4 * unit(dtype)
    factor = d * wide
    dgate, dup = factor * slope, d * f
    return [
        (dgate, rounding * dgate.abs() + slack_of_slope * factor.abs() + floor(gate.dtype)),
        (dup, rounding * dup.abs() + slack * d.abs() + floor(gate.dtype)),
    ]


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
    terms: Tensor, spread: Tensor, dtype: torch.dtype, statistics=torch.float32
) -> tuple[Tensor, Tensor]:
    """The sum of the terms over all rows; `spread` is what each of them is off by."""
    width = terms.shape[-1]
    rows = accumulation(terms.numel() // max(1, width), statistics)
    total = terms.reshape(-1, width).sum(0)
    slack = (spread + rows * terms.abs()).reshape(-1, width).sum(0)
    return total, 2 * unit(dtype) * total.abs() + slack + floor(dtype)


def _scale(weight: Tensor | None, offset: float, x: Tensor) -> Tensor:
    return _wide(weight, 1.0, x) + (0.0 if weight is None else offset)


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


def _assert_rows(error: Tensor, bound: Tensor, name: str) -> None:
    """A row whose every element is just inside its bound is wrong as a whole."""
    if error.dim() == 0 or error.shape[-1] < ROW_LENGTH or error.numel() == 0:
        return
    got = error.square().mean(-1).sqrt()
    squares = bound.square().expand_as(error)
    # Errors that are uniform up to their bounds have a third of its square, give or take 0.3 / √n,
    # where n elements count: five times that, where few do.
    count = squares.sum(-1).square() / squares.square().sum(-1).clamp(min=1e-300)
    few = (1 / 3 + 1.5 / count.clamp(min=1).sqrt()).sqrt()
    allowed = few.clamp(ROW_FRACTION, 1.0) * squares.mean(-1).sqrt()
    worst = int((got / allowed).argmax())
    assert bool((got <= allowed).all()), (
        f"{name}: row {worst} has root mean square error {got.flatten()[worst]:.3g}, "
        f"allowed {allowed.flatten()[worst]:.3g}"
    )
