"""The decays of published models, as linear attention takes them."""

import operator

import torch
from torch import Tensor


def retention_log_decay(heads: int, *, device: torch.device | str | int | None = None) -> Tensor:
    """The decays of retention (RetNet): log(1 − 2^(−5 − h)) of head h.

    From 1/32 a token in the first head to ever less in the next.

    Args:
        heads: H.
        device: Of the result.

    Returns:
        [H], float32, for `log_decay` of `linear_attention`.

    Raises:
        ValueError: There are no heads.
        TypeError: `heads` is no integer.

    Source:
        Sun et al., Retentive Network: A Successor to Transformer for Large Language Models (2023),
        section 2.2 (multi-scale retention).

    Example:
        >>> import thunderkittens
        >>> thunderkittens.retention_log_decay(4)
        tensor([-0.0317, -0.0157, -0.0078, -0.0039])
    """
    _check("retention_log_decay", heads)
    powers = -5.0 - torch.arange(heads, dtype=torch.float64, device=device)
    return torch.log1p(-torch.exp2(powers)).float()


def lightning_log_decay(
    heads: int, layer: int, layers: int, *, device: torch.device | str | int | None = None
) -> Tensor:
    """Lightning attention's decays, in flash-linear-attention: −(8 / H) (1 − l / L) h of head h.

    Linear in the head, of which the first never decays; weaker from layer to layer. (MiniMax-01's
    lightning attention decays otherwise: `minimax_log_decay`.)

    Args:
        heads: H.
        layer: l, counted from 0.
        layers: L, of the model.
        device: Of the result.

    Returns:
        [H], float32, for `log_decay` of `linear_attention`.

    Raises:
        ValueError: There are no heads, or no such layer.
        TypeError: An argument is no integer.

    Source:
        Qin et al., Lightning Attention-2 (2024), with the slopes of `chunk_lightning_attn` in
        flash-linear-attention.

    Example:
        >>> import thunderkittens
        >>> thunderkittens.lightning_log_decay(4, layer=1, layers=2)
        tensor([-0., -1., -2., -3.])
    """
    _check("lightning_log_decay", heads, layer, layers)
    of_layer = 8 / heads * (1 - layer / layers)
    return (-of_layer * torch.arange(heads, dtype=torch.float64, device=device)).float()


def minimax_log_decay(
    heads: int, layer: int, layers: int, *, device: torch.device | str | int | None = None
) -> Tensor:
    """The decays of MiniMax-01's lightning attention: ALiBi's slopes, weaker from layer to layer.

    Head h of layer l has −2^(−8 (h + 1) / H) (1 − l / (L − 1) + 10⁻⁵), if H is a power of two.
    If it is not, the first heads have the slopes of the next smaller power of two, n, and the
    others the first, third, fifth … slope of 2 n. A single layer's factor is 1 + 10⁻⁵.

    Args:
        heads: H.
        layer: l, counted from 0.
        layers: L, of the model.
        device: Of the result.

    Returns:
        [H], float32, for `log_decay` of `linear_attention`.

    Raises:
        ValueError: There are no heads, or no such layer.
        TypeError: An argument is no integer.

    Source:
        MiniMax, MiniMax-01: Scaling Foundation Models with Lightning Attention (2025); the slopes
        are those of Press et al., Train Short, Test Long (2022).

    Example:
        >>> import thunderkittens
        >>> thunderkittens.minimax_log_decay(3, layer=0, layers=9)
        tensor([-0.0625, -0.0039, -0.2500])
    """
    _check("minimax_log_decay", heads, layer, layers)
    power = 1 << (operator.index(heads).bit_length() - 1)
    slopes = _alibi_slopes(power, device)
    if power != heads:
        slopes = torch.cat([slopes, _alibi_slopes(2 * power, device)[::2][: heads - power]])
    of_layer = 1 - layer / max(layers - 1, 1) + 1e-5
    return (-of_layer * slopes).float()


def _alibi_slopes(heads: int, device: torch.device | str | int | None) -> Tensor:
    """Of a power of two, in float64."""
    places = torch.arange(1, heads + 1, dtype=torch.float64, device=device)
    return torch.exp2(-8 * places / heads)


def _check(function: str, heads: int, layer: int = 0, layers: int = 1) -> None:
    for name, value in (("heads", heads), ("layer", layer), ("layers", layers)):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            got = "None" if value is None else f"{type(value).__name__} {value!r}"
            raise TypeError(f"{function}: {name} must be an integer, got {got}")
    if heads < 1:
        raise ValueError(f"{function}: heads must be >= 1, got {heads}")
    if not 0 <= layer < layers:
        raise ValueError(f"{function}: layer must be >= 0 and < layers = {layers}, got {layer}")
