"""Norm modules."""

import operator
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from thunderkittens.ops.norm import layer_norm


class LayerNorm(nn.Module):
    """`torch.nn.LayerNorm` on `thunderkittens.layer_norm`, with the same parameters.

    Args:
        normalized_shape: The sizes of the last dimensions, which are normalised together.
        eps: Added to the variance.
        elementwise_affine: Have `weight` (and `bias`).
        bias: Have `bias`; only with `elementwise_affine`.
        device: Of the parameters.
        dtype: Of the parameters; float32 also serves 16-bit inputs.

    Attributes:
        weight: [*normalized_shape], ones at first, or None.
        bias: [*normalized_shape], zeros at first, or None.

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.nn.LayerNorm(8)(torch.zeros(2, 8)).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine

        def parameter(wanted: bool) -> nn.Parameter | None:
            shape = self.normalized_shape
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if wanted else None

        self.register_parameter("weight", parameter(elementwise_affine))
        self.register_parameter("bias", parameter(elementwise_affine and bias))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets `weight` to ones and `bias` to zeros."""
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Normalises x, [..., *normalized_shape]; the result is contiguous and has x's dtype."""
        if not isinstance(x, Tensor):
            got = "None" if x is None else type(x).__name__
            raise TypeError(f"LayerNorm: x must be a tensor, got {got}")
        dims = len(self.normalized_shape)
        if (dims == 1 and self.weight is not None) or x.is_nested:  # the op has the sentence
            return layer_norm(x, self.weight, self.bias, self.eps)
        if x.shape[-dims:] != self.normalized_shape:
            raise ValueError(
                f"LayerNorm: x must have shape [*, {', '.join(map(str, self.normalized_shape))}], "
                f"got {list(x.shape)}"
            )
        flat = x.flatten(-dims)
        weight = None if self.weight is None else self.weight.flatten()
        bias = None if self.bias is None else self.bias.flatten()
        return layer_norm(flat, weight, bias, self.eps).view(x.shape)

    def extra_repr(self) -> str:
        """As the torch at hand prints its own, which has the same attributes."""
        return nn.LayerNorm.extra_repr(self)


def _sizes(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    """Whatever counts as an integer, numpy's too, or a sequence of those."""
    try:
        return _checked((operator.index(normalized_shape),))
    except TypeError:
        pass
    try:
        return _checked(tuple(operator.index(size) for size in normalized_shape))
    except TypeError:
        raise TypeError(
            "LayerNorm: normalized_shape must be an integer or a sequence of integers, "
            f"got {normalized_shape!r}"
        ) from None


def _checked(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if not sizes:
        raise ValueError("LayerNorm: normalized_shape must have a size, got ()")
    if min(sizes) < 0:
        raise ValueError(f"LayerNorm: normalized_shape must have sizes >= 0, got {sizes}")
    return sizes
