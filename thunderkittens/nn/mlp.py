"""The MLP of a transformer."""

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from thunderkittens.nn._options import check_choice, check_sizes
from thunderkittens.ops.mlp import mlp


class MLP(nn.Module):
    """fc2(gelu(fc1(x))), as one call of `thunderkittens.mlp`.

    The forward reads the parameters of fc1 and fc2 and does not call them: hooks on these two do
    not run, and where each is to be parallelised, replaced or quantised by itself, call them in
    turn.

    Args:
        in_features: Of x.
        hidden_features: Of fc1(x).
        approximate: As of torch.nn.GELU: "none" or "tanh".
        out_features: Of the result; None: in_features.
        bias: Whether both layers have one.
        device: Of the parameters.
        dtype: Of the parameters.

    Attributes:
        fc1: Linear, in_features → hidden_features.
        fc2: Linear, hidden_features → out_features.

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.nn.MLP(8, 32)(torch.zeros(2, 8)).shape
        torch.Size([2, 8])
    """

    approximate: Literal["none", "tanh"]

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """Calls `forward`."""
            ...

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        approximate: Literal["none", "tanh"] = "none",
        out_features: int | None = None,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        outputs = in_features if out_features is None else out_features
        check_sizes(
            "MLP", in_features=in_features, hidden_features=hidden_features, out_features=outputs
        )
        check_choice("MLP", "approximate", approximate, ("none", "tanh"))
        self.approximate = approximate
        self.fc1 = nn.Linear(in_features, hidden_features, bias, device, dtype)
        self.fc2 = nn.Linear(hidden_features, outputs, bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in_features] → [..., out_features]."""
        fc1, fc2 = self.fc1, self.fc2
        return mlp(x, fc1.weight, fc1.bias, fc2.weight, fc2.bias, approximate=self.approximate)

    def extra_repr(self) -> str:
        """What was chosen."""
        return f"approximate={self.approximate!r}"
