"""A linear layer whose weight has 8 or 4 bits a number."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from thunderkittens.nn._options import check_sizes
from thunderkittens.ops.quantized_linear import quantize_weight, quantized_linear

WeightDtype = torch.dtype | Literal["int4"]


class QuantizedLinear(nn.Module):
    """`torch.nn.Linear` for inference, its weight in fp8 (e4m3) or int4: `quantized_linear`.

    `from_linear` makes one of a layer that was trained. Made by its sizes it holds zeros, for
    `load_state_dict`. Its weight has no gradient; x and bias have theirs.

    `to(dtype)`, `half()` and the like change what is of x's dtype: bias, and the scale of int4.

    Args:
        in_features: K; with int4 a multiple of group_size.
        out_features: N.
        bias: Whether there is one.
        weight_dtype: torch.float8_e4m3fn or "int4".
        group_size: With int4, how many neighbours of a row share a scale: a multiple of 8 (of 32
            for the kernel).
        symmetric: With int4, whether zero is 8 everywhere, and no tensor.
        weight_is_constant: Whether each call promises it, as `quantized_linear` takes it: no kernel
            directly in front of a call writes weight, scale or zero, as `load_state_dict` would.
        device: Of the tensors.
        dtype: Of x.

    Attributes:
        weight: float8_e4m3fn [N, K], or uint8 [N, K / 2].
        scale: float32 [N], or of int4 x's dtype [N, K / group_size].
        zero: With int4, not symmetric: uint8, scale's shape; else None.
        bias: [N] of x's dtype, or None.
        weight_is_constant: As above; it may be changed.

    Raises:
        TypeError: A size is no integer.
        ValueError: Another argument is not as above.

    Example:
        >>> import torch, thunderkittens
        >>> layer = thunderkittens.nn.QuantizedLinear.from_linear(torch.nn.Linear(256, 64), "int4")
        >>> layer(torch.randn(2, 256)).shape, layer.weight.shape
        (torch.Size([2, 64]), torch.Size([64, 128]))
    """

    weight: Tensor
    scale: Tensor
    zero: Tensor | None
    bias: nn.Parameter | None
    weight_is_constant: bool

    if TYPE_CHECKING:

        def __call__(self, x: Tensor, **around: Any) -> Tensor:
            """Calls `forward`."""
            ...

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        weight_dtype: WeightDtype,
        group_size: int = 128,
        symmetric: bool = True,
        weight_is_constant: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weight_is_constant = weight_is_constant
        check_sizes("QuantizedLinear", in_features=in_features, out_features=out_features)
        dtype = dtype or torch.get_default_dtype()
        zeros = torch.zeros(out_features, in_features, device=device, dtype=dtype)
        made = quantize_weight(zeros, weight_dtype, group_size=group_size, symmetric=symmetric)
        for name, tensor in made._asdict().items():
            self.register_buffer(name, tensor)
        of_bias = torch.zeros(out_features, device=device, dtype=dtype)
        self.register_parameter("bias", nn.Parameter(of_bias) if bias else None)

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        weight_dtype: WeightDtype,
        *,
        group_size: int = 128,
        symmetric: bool = True,
        weight_is_constant: bool = False,
    ) -> "QuantizedLinear":
        """A layer with the weight of another one, rounded to the nearest, and its bias itself.

        Args:
            linear: torch.nn.Linear, or what has its `weight` and `bias`.
            weight_dtype: torch.float8_e4m3fn or "int4".
            group_size: As above.
            symmetric: As above.
            weight_is_constant: As above.

        Returns:
            On linear's device, for its dtype.

        Raises:
            ValueError: As `quantize_weight`: a number of the weight is not finite, or an argument
                is not as above.
        """
        weight = linear.weight.detach()
        made = quantize_weight(weight, weight_dtype, group_size=group_size, symmetric=symmetric)
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer.weight_is_constant = weight_is_constant
        for name, tensor in made._asdict().items():
            layer.register_buffer(name, tensor)
        layer.register_parameter("bias", linear.bias)
        return layer

    def forward(
        self,
        x: Tensor,
        *,
        residual: Tensor | None = None,
        activation: Literal["none", "swiglu"] | None = "none",
        norm: tuple[Tensor, float] | None = None,
    ) -> Tensor:
        """x [..., K] → [..., N]; the keywords are those of `quantized_linear`."""
        return quantized_linear(
            x,
            self.weight,
            self.scale,
            self.zero,
            self.bias,
            residual=residual,
            activation=activation,
            norm=norm,
            weight_is_constant=self.weight_is_constant,
        )

    def extra_repr(self) -> str:
        """Sizes, and what the weight is made of."""
        rows, width = self.weight.shape
        if self._is_int4():
            width *= 2
            kind = f"int4, group_size={width // max(1, self.scale.shape[1])}"
        else:
            kind = "float8_e4m3fn"
        bias = self.bias is not None
        return f"in_features={width}, out_features={rows}, bias={bias}, weight_dtype={kind}"

    def _is_int4(self) -> bool:
        return self.weight.dtype == torch.uint8

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "QuantizedLinear":
        """Modules convert all that floats; e4m3 and its scale stay what they are."""
        before = {} if self._is_int4() else {"weight": self.weight, "scale": self.scale}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, tensor in before.items():
            moved = getattr(self, name)
            if moved.dtype != tensor.dtype:
                setattr(self, name, tensor.to(moved.device))
        return self
