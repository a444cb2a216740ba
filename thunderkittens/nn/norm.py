"""Norm modules."""

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from thunderkittens.nn._options import check_choice, check_numbers
from thunderkittens.ops.norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm


class _Norm(nn.Module):
    """What the norms share: the shape, the parameters, and x with its last dimensions as one."""

    weight: nn.Parameter | None
    weight_offset: float = 0.0

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        elementwise_affine: bool,
        bias: bool | None,
        device: torch.device | str | int | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _sizes(type(self).__name__, normalized_shape)
        self.elementwise_affine = elementwise_affine

        def parameter(wanted: bool) -> nn.Parameter | None:
            shape = self.normalized_shape
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if wanted else None

        self.register_parameter("weight", parameter(elementwise_affine))
        if bias is not None:
            self.register_parameter("bias", parameter(elementwise_affine and bias))

    def reset_parameters(self) -> None:
        """Sets `weight` to ones (with an offset, what makes ones of it) and `bias` to zeros."""
        if self.weight is not None:
            nn.init.constant_(self.weight, 1.0 - self.weight_offset)
        bias = getattr(self, "bias", None)
        if bias is not None:
            nn.init.zeros_(bias)

    def _is_flat(self, x: Tensor, name: str = "x") -> bool:
        """Whether the op takes x as it is; raises where it is no tensor of our shape."""
        own = type(self).__name__
        if not isinstance(x, Tensor):
            got = "None" if x is None else type(x).__name__
            raise TypeError(f"{own}: {name} must be a tensor, got {got}")
        dims = len(self.normalized_shape)
        if (dims == 1 and self.weight is not None) or x.is_nested:  # the op has the sentence
            return True
        if x.shape[-dims:] != self.normalized_shape:
            raise ValueError(
                f"{own}: {name} must have shape [*, {', '.join(map(str, self.normalized_shape))}], "
                f"got {list(x.shape)}"
            )
        return dims == 1

    def _flat(self, x: Tensor) -> Tensor:
        """Our dimensions of x as one."""
        return x.flatten(-len(self.normalized_shape))

    def _flat_residual(self, residual: Tensor | None) -> Tensor | None:
        if residual is None:
            return None
        self._is_flat(residual, "residual")
        return self._flat(residual)


def _vector(parameter: nn.Parameter | None) -> Tensor | None:
    return None if parameter is None else parameter.flatten()


class LayerNorm(_Norm):
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

    bias: nn.Parameter | None

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """Calls `forward`."""
            ...

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_numbers(type(self).__name__, eps=eps)
        super().__init__(normalized_shape, elementwise_affine, bias, device, dtype)
        self.eps = eps
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Normalises x, [..., *normalized_shape]; the result is contiguous and has x's dtype."""
        if self._is_flat(x):
            return layer_norm(x, self.weight, self.bias, self.eps)
        y = layer_norm(self._flat(x), _vector(self.weight), _vector(self.bias), self.eps)
        return y.view(x.shape)

    def extra_repr(self) -> str:
        """All settings, those of torch's module as torch prints them."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(_Norm):
    """`torch.nn.RMSNorm` on `thunderkittens.rms_norm`, with the same parameters.

    Args:
        normalized_shape: The sizes of the last dimensions, which are normalised together.
        eps: Added to the mean square; None, as in torch, as of `thunderkittens.rms_norm`.
        elementwise_affine: Have `weight`.
        device: Of the parameter.
        dtype: Of the parameter; float32 also serves 16-bit inputs.
        weight_offset: Added to `weight`; 1.0 for models whose weights are stored about zero.
        casting: "llama" or "gemma", as of `thunderkittens.rms_norm`.

    Attributes:
        weight: [*normalized_shape], 1 − weight_offset at first, or None.

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.nn.RMSNorm(8)(torch.zeros(2, 8)).shape
        torch.Size([2, 8])
    """

    casting: Literal["llama", "gemma"]

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """Calls `forward`."""
            ...

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        weight_offset: float = 0.0,
        casting: Literal["llama", "gemma"] = "llama",
    ) -> None:
        own = type(self).__name__
        check_numbers(own, weight_offset=weight_offset, **({} if eps is None else {"eps": eps}))
        check_choice(own, "casting", casting, ("llama", "gemma"))
        super().__init__(normalized_shape, elementwise_affine, None, device, dtype)
        self.eps = eps
        self.weight_offset = weight_offset
        self.casting = casting
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Normalises x, [..., *normalized_shape]; the result is contiguous and has x's dtype."""
        offset, casting = self.weight_offset, self.casting
        if self._is_flat(x):
            return rms_norm(x, self.weight, self.eps, weight_offset=offset, casting=casting)
        weight, flat = _vector(self.weight), self._flat(x)
        y = rms_norm(flat, weight, self.eps, weight_offset=offset, casting=casting)
        return y.view(x.shape)

    def extra_repr(self) -> str:
        """All settings, those of torch's module as torch prints them."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, "
            f"weight_offset={self.weight_offset}, casting={self.casting!r}"
        )


class AddLayerNorm(LayerNorm):
    """Dropout, residual addition and layer norm, by `thunderkittens.add_layer_norm`.

    Args:
        normalized_shape: The size of the last dimension.
        eps: Added to the variance.
        elementwise_affine: Have `weight` (and `bias`).
        bias: Have `bias`; only with `elementwise_affine`.
        device: Of the parameters.
        dtype: Of the parameters; float32 also serves 16-bit inputs.
        dropout_p: The probability that an element of x is dropped, in training.

    Attributes:
        weight: [normalized_shape], ones at first, or None.
        bias: [normalized_shape], zeros at first, or None.

    Example:
        >>> import torch, thunderkittens
        >>> y, total = thunderkittens.nn.AddLayerNorm(8)(torch.ones(2, 8), torch.ones(2, 8))
        >>> total[0, 0]
        tensor(2.)
    """

    if TYPE_CHECKING:

        def __call__(  # type: ignore[override]
            self, x: Tensor, residual: Tensor | None
        ) -> tuple[Tensor, Tensor]:
            """Calls `forward`."""
            ...

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        dropout_p: float = 0.0,
    ) -> None:
        check_numbers(type(self).__name__, dropout_p=dropout_p)
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype)
        self.dropout_p = dropout_p

    def forward(  # type: ignore[override]
        self, x: Tensor, residual: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The norm of dropout(x) + residual, and that sum; both have x's shape.

        Without residual (None, in the first block) and dropout the sum is x itself.
        """
        is_flat = self._is_flat(x)
        y, total = add_layer_norm(
            x if is_flat else self._flat(x),
            residual if is_flat else self._flat_residual(residual),
            self.weight if is_flat else _vector(self.weight),
            self.bias if is_flat else _vector(self.bias),
            eps=self.eps,
            dropout_p=self.dropout_p,
            training=self.training,
        )
        return (y, total) if is_flat else (y.view(x.shape), total.view(x.shape))

    def extra_repr(self) -> str:
        """As LayerNorm's, and dropout_p."""
        return f"{super().extra_repr()}, dropout_p={self.dropout_p}"


class AddRMSNorm(RMSNorm):
    """Dropout, residual addition and RMS norm, by `thunderkittens.add_rms_norm`.

    Args:
        normalized_shape: The size of the last dimension.
        eps: Added to the mean square; None, as in torch, as of `thunderkittens.rms_norm`.
        elementwise_affine: Have `weight`.
        device: Of the parameter.
        dtype: Of the parameter; float32 also serves 16-bit inputs.
        weight_offset: As of `RMSNorm`.
        casting: As of `RMSNorm`.
        dropout_p: The probability that an element of x is dropped, in training.

    Attributes:
        weight: [normalized_shape], 1 − weight_offset at first, or None.

    Example:
        >>> import torch, thunderkittens
        >>> y, total = thunderkittens.nn.AddRMSNorm(8)(torch.ones(2, 8), torch.ones(2, 8))
        >>> total[0, 0]
        tensor(2.)
    """

    if TYPE_CHECKING:

        def __call__(  # type: ignore[override]
            self, x: Tensor, residual: Tensor | None
        ) -> tuple[Tensor, Tensor]:
            """Calls `forward`."""
            ...

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        weight_offset: float = 0.0,
        casting: Literal["llama", "gemma"] = "llama",
        dropout_p: float = 0.0,
    ) -> None:
        check_numbers(type(self).__name__, dropout_p=dropout_p)
        super().__init__(
            normalized_shape,
            eps,
            elementwise_affine,
            device,
            dtype,
            weight_offset=weight_offset,
            casting=casting,
        )
        self.dropout_p = dropout_p

    def forward(  # type: ignore[override]
        self, x: Tensor, residual: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The norm of dropout(x) + residual, and that sum; both have x's shape.

        Without residual (None, in the first block) and dropout the sum is x itself.
        """
        is_flat = self._is_flat(x)
        y, total = add_rms_norm(
            x if is_flat else self._flat(x),
            residual if is_flat else self._flat_residual(residual),
            self.weight if is_flat else _vector(self.weight),
            eps=self.eps,
            weight_offset=self.weight_offset,
            casting=self.casting,
            dropout_p=self.dropout_p,
            training=self.training,
        )
        return (y, total) if is_flat else (y.view(x.shape), total.view(x.shape))

    def extra_repr(self) -> str:
        """As RMSNorm's, and dropout_p."""
        return f"{super().extra_repr()}, dropout_p={self.dropout_p}"


def _sizes(own: str, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    """Whatever counts as an integer, numpy's too, or a sequence of those."""
    try:
        return _checked(own, (_index(normalized_shape),))
    except TypeError:
        pass
    try:
        return _checked(own, tuple(_index(size) for size in normalized_shape))  # type: ignore[union-attr]
    except TypeError:
        raise TypeError(
            f"{own}: normalized_shape must be an integer or a sequence of integers, "
            f"got {normalized_shape!r}"
        ) from None


def _index(size: object) -> int:
    if isinstance(size, bool):
        raise TypeError
    return operator.index(size)  # type: ignore[arg-type]


def _checked(own: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    if not sizes:
        raise ValueError(f"{own}: normalized_shape must have a size, got ()")
    if min(sizes) < 0:
        raise ValueError(f"{own}: normalized_shape must have sizes >= 0, got {sizes}")
    return sizes
