"""Activation modules, and the gated feed-forward layer of Llama and its kind."""

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from thunderkittens.nn._options import check_choice, check_sizes
from thunderkittens.ops.activation import geglu, gelu, swiglu


class GELU(nn.Module):
    """`torch.nn.GELU` on `thunderkittens.gelu`.

    Args:
        approximate: "none" (the default, as in torch) or "tanh".

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.nn.GELU(approximate="tanh")(torch.zeros(2, 8)).shape
        torch.Size([2, 8])
    """

    approximate: Literal["none", "tanh"]

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """Calls `forward`."""
            ...

    def __init__(self, approximate: Literal["none", "tanh"] = "none") -> None:
        super().__init__()
        check_choice("GELU", "approximate", approximate, ("none", "tanh"))
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """gelu of each element; the result is contiguous."""
        return gelu(x, approximate=self.approximate)

    def extra_repr(self) -> str:
        """As torch prints its own."""
        return f"approximate={self.approximate!r}"


class SwiGLU(nn.Module):
    """silu(gate) · up of the two halves of the last dimension, gate first, read in place.

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.nn.SwiGLU()(torch.zeros(2, 8)).shape
        torch.Size([2, 4])
    """

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """Calls `forward`."""
            ...

    def forward(self, x: Tensor) -> Tensor:
        """x [..., 2F] → [..., F]."""
        return swiglu(*_halves("SwiGLU", x))


class GEGLU(nn.Module):
    """gelu(gate) · up of the two halves of the last dimension, gate first, read in place.

    Args:
        approximate: "none", the exact gelu, or "tanh".

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.nn.GEGLU()(torch.zeros(2, 8)).shape
        torch.Size([2, 4])
    """

    approximate: Literal["none", "tanh"]

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """Calls `forward`."""
            ...

    def __init__(self, approximate: Literal["none", "tanh"] = "none") -> None:
        super().__init__()
        check_choice("GEGLU", "approximate", approximate, ("none", "tanh"))
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """x [..., 2F] → [..., F]."""
        return geglu(*_halves("GEGLU", x), approximate=self.approximate)

    def extra_repr(self) -> str:
        """What was chosen."""
        return f"approximate={self.approximate!r}"


class GatedMLP(nn.Module):
    """down_proj(f(gate_proj(x)) · up_proj(x)), with the parameter names of Llama's MLP.

    Args:
        hidden_size: Of x and the result.
        intermediate_size: Of gate and up.
        activation: f: "silu" (Llama, Mistral, Qwen), "gelu_tanh" (Gemma) or "gelu".
        bias: Whether the three projections have one.
        device: Of the parameters.
        dtype: Of the parameters.

    Attributes:
        gate_proj: Linear, hidden_size → intermediate_size.
        up_proj: Linear, hidden_size → intermediate_size.
        down_proj: Linear, intermediate_size → hidden_size.

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.nn.GatedMLP(8, 24)(torch.zeros(2, 8)).shape
        torch.Size([2, 8])
    """

    activation: Literal["silu", "gelu_tanh", "gelu"]

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """Calls `forward`."""
            ...

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        activation: Literal["silu", "gelu_tanh", "gelu"] = "silu",
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes("GatedMLP", hidden_size=hidden_size, intermediate_size=intermediate_size)
        check_choice("GatedMLP", "activation", activation, ("silu", "gelu_tanh", "gelu"))
        self.activation = activation
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias, device, dtype)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias, device, dtype)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., hidden_size] → [..., hidden_size]."""
        gate, up = self.gate_proj(x), self.up_proj(x)
        if self.activation == "silu":
            y = swiglu(gate, up)
        else:
            y = geglu(gate, up, approximate="none" if self.activation == "gelu" else "tanh")
        down: Tensor = self.down_proj(y)
        return down

    def extra_repr(self) -> str:
        """What was chosen."""
        return f"activation={self.activation!r}"


def _halves(module: str, x: Tensor) -> tuple[Tensor, Tensor]:
    if not isinstance(x, Tensor):
        got = "None" if x is None else type(x).__name__
        raise TypeError(f"{module}: x must be a tensor, got {got}")
    if not x.is_nested and (x.dim() == 0 or x.shape[-1] % 2):
        raise ValueError(f"{module}: x must have an even last dimension, got shape {list(x.shape)}")
    gate, up = x.chunk(2, dim=-1)
    return gate, up
