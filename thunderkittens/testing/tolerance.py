"""How far a result may be from float64, derived from dtype and reduction length and never tuned.

Each bound is a tensor: it comes from the same formula on absolute values, so it grows where the
problem itself is badly conditioned and nowhere else.
"""

import math

import torch
from torch import Tensor

from thunderkittens.testing._norm_tolerance import (
    add_norm,
    add_norm_backward,
    layer_norm,
    layer_norm_backward,
    rms_norm,
    rms_norm_backward,
)
from thunderkittens.testing._rounding import accumulation, floor, unit

__all__ = [
    "accumulation",
    "activation",
    "add_norm",
    "add_norm_backward",
    "assert_close",
    "attention",
    "based_attention",
    "cross_entropy",
    "floor",
    "gated",
    "gated_backward",
    "hedgehog_attention",
    "layer_norm",
    "layer_norm_backward",
    "linear_attention",
    "rms_norm",
    "rms_norm_backward",
    "rotary",
    "unit",
]

ROW_LENGTH = 32  # rows at least this long are also judged as a whole
ROW_FRACTION = 0.75  # of the bound's root mean square: rounding errors do not all have one size


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


def linear_attention(want: Tensor, size: Tensor, dtype: torch.dtype, length: int) -> Tensor:
    """The bound of an output, a state or a gradient of linear attention.

    Args:
        want: The reference, float64.
        size: The same sums of absolute values.
        dtype: Of q, k and v, to which weights, decayed values and states are rounded before a
            product; float64 is computed in float64, the rest in float32.
        length: How many tokens there are; products are also sums over a width of at most 256.

    Returns:
        The largest allowed error, want's shape.
    """
    inner = torch.float64 if dtype == torch.float64 else torch.float32
    slack = 3 * accumulation(length + 256, inner)
    return 2 * unit(dtype) * (want.abs() + 2 * size) + slack * size + floor(dtype)


def based_attention(want: Tensor, size: Tensor, dtype: torch.dtype, length: int) -> Tensor:
    """The bound of an output, a state or a gradient of based_attention.

    Args:
        want: The reference, float64.
        size: The same sums of absolute values, where there is a quotient over its denominator.
        dtype: Of q, k and v, to which weights, features and states are rounded before a product;
            float64 is computed in float64, the rest in float32.
        length: How many tokens there are; products are also sums over at most 256 features.

    Returns:
        The largest allowed error, want's shape.
    """
    # Features of q, features of k, the state, and the result itself; the denominator has float32's.
    return linear_attention(want, size, dtype, length)


def hedgehog_attention(
    want: Tensor, size: Tensor, dtype: torch.dtype, length: int, score: float
) -> Tensor:
    """The bound of an output or a state of hedgehog attention.

    Args:
        want: The reference, float64.
        size: The same sums of absolute values; of an output, which is a quotient N / D, those of N
            and of |N / D| times D, divided by |D|.
        dtype: Of q, k and v. Features of queries and keys, and states, are rounded to it one after
            the other; float64 is computed in float64, the rest in float32.
        length: How many tokens there are; products are also sums over at most 256 columns.
        score: The largest |q| @ |k| / sqrt(D), or of those with the maps: rounding an exponent
            shifts a weight by as much.

    Returns:
        The largest allowed error, want's shape.
    """
    inner = torch.float64 if dtype == torch.float64 else torch.float32
    slack = 4 * accumulation(length + 256, inner) + 8 * unit(inner) * (4 + score)
    return 2 * unit(dtype) * (want.abs() + 3 * size) + slack * size + floor(dtype)


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
    x64 = x.double()
    x1, x2 = x64[..., first], x64[..., second]
    want, bound = x64.clone(), torch.zeros_like(x64)
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
    x64 = x.double()
    square = x64.square()
    if name == "none":
        s = torch.special.erfc(-x64 * math.sqrt(0.5)) / 2
        exponent, bend = square / 2, torch.exp(-square / 2) / math.sqrt(2 * math.pi)
        dz = x64.abs()  # about −(ln Φ)' in its tail
    else:
        root = 2 * math.sqrt(2 / math.pi)
        z = x64 if name == "silu" else root * (x64 + 0.044715 * x64 * square)
        dz = torch.ones_like(z) if name == "silu" else root * (1 + 3 * 0.044715 * square)
        s, rest = torch.sigmoid(z), torch.sigmoid(-z)
        exponent, bend = z.abs(), s * rest * dz
    f, slope, size = x64 * s, s + x64 * bend, x64.abs()
    eps = torch.finfo(dtype).eps / 2
    relative: Tensor | float = eps * 16 + (2**-14 if torch.finfo(x.dtype).bits == 16 else 0.0)
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
    up64 = up.double()
    y = f * up64
    rounding = 2 * unit(gate.dtype) + 2 * unit(dtype)
    return y, rounding * y.abs() + slack * up64.abs() + floor(gate.dtype)


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
    d, up64 = dy.double(), up.double()
    rounding = 2 * unit(gate.dtype) + 4 * unit(dtype)
    factor = d * up64
    dgate, dup = factor * slope, d * f
    return [
        (dgate, rounding * dgate.abs() + slack_of_slope * factor.abs() + floor(gate.dtype)),
        (dup, rounding * dup.abs() + slack * d.abs() + floor(gate.dtype)),
    ]


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

    # Errors that are uniform up to their bounds have a third of its square, give or take 0.3 / √n,
    # where n elements count: five times that, where few do.
    squares = own.square().expand_as(error)
    count = squares.sum(-1).square() / squares.square().sum(-1).clamp(min=1e-300)
    few = (1 / 3 + 1.5 / count.clamp(min=1).sqrt()).sqrt()
    got, allowed = size(error), size(shared) + few.clamp(ROW_FRACTION, 1.0) * size(own)
    worst = int((got / allowed).argmax())
    assert bool((got <= allowed).all()), (
        f"{name}: row {worst} has root mean square error {got.flatten()[worst]:.3g}, "
        f"allowed {allowed.flatten()[worst]:.3g}"
    )
