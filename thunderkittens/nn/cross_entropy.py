"""Modules of cross entropy."""

from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from thunderkittens.nn._options import check_choice, check_numbers
from thunderkittens.ops.cross_entropy import cross_entropy, linear_cross_entropy

REDUCTIONS = ("mean", "sum", "none")


class CrossEntropyLoss(nn.Module):
    """`torch.nn.CrossEntropyLoss` on `thunderkittens.cross_entropy`, for targets that are columns.

    Classes are the last dimension of the logits, not the second. The loss is float32.

    Args:
        weight: Of torch's module; weights of classes are not supported, so None.
        ignore_index: Rows with this target do not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: How much of the target's weight goes to all columns alike; 0 … 1.
        z_loss: Weight of the square of the row's log-sum-exp.
        inplace: Let the gradient take the place of the logits, whose values are lost.

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.nn.CrossEntropyLoss()(torch.zeros(2, 4), torch.tensor([1, 2]))
        tensor(1.3863)
    """

    reduction: Literal["mean", "sum", "none"]

    if TYPE_CHECKING:

        def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
            """Calls `forward`."""
            ...

    def __init__(
        self,
        weight: None = None,
        *,
        ignore_index: int = -100,
        reduction: Literal["mean", "sum", "none"] = "mean",
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        inplace: bool = False,
    ) -> None:
        super().__init__()
        if weight is not None:
            raise ValueError(
                "CrossEntropyLoss: weight must be None, weights of classes are not supported, "
                f"got {type(weight).__name__}"
            )
        check_choice("CrossEntropyLoss", "reduction", reduction, REDUCTIONS)
        check_numbers("CrossEntropyLoss", label_smoothing=label_smoothing, z_loss=z_loss)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss
        self.inplace = inplace

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of logits [..., V] with targets [...]."""
        return cross_entropy(
            logits,
            targets,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
            inplace=self.inplace,
        )

    def extra_repr(self) -> str:
        """All settings."""
        return f"{_settings(self)}, inplace={self.inplace}"


class LinearCrossEntropyLoss(nn.Module):
    """`thunderkittens.linear_cross_entropy` as a module; the layer's weight is given at each call.

    So it may be tied to an embedding's: `loss(x, embedding.weight, targets)`.

    Args:
        ignore_index: Rows with this target do not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: How much of the target's weight goes to all columns alike; 0 … 1.
        z_loss: Weight of the square of the row's log-sum-exp.

    Example:
        >>> import torch, thunderkittens
        >>> loss = thunderkittens.nn.LinearCrossEntropyLoss()
        >>> loss(torch.zeros(3, 8), torch.ones(4, 8), torch.tensor([0, 1, 2]))
        tensor(1.3863)
    """

    reduction: Literal["mean", "sum", "none"]

    if TYPE_CHECKING:

        def __call__(
            self, x: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None = None
        ) -> Tensor:
            """Calls `forward`."""
            ...

    def __init__(
        self,
        *,
        ignore_index: int = -100,
        reduction: Literal["mean", "sum", "none"] = "mean",
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ) -> None:
        super().__init__()
        check_choice("LinearCrossEntropyLoss", "reduction", reduction, REDUCTIONS)
        check_numbers("LinearCrossEntropyLoss", label_smoothing=label_smoothing, z_loss=z_loss)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss

    def forward(
        self, x: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        """The loss of x [..., H] through weight [V, H] and bias [V] with targets [...]."""
        return linear_cross_entropy(
            x,
            weight,
            targets,
            bias=bias,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
        )

    def extra_repr(self) -> str:
        """All settings."""
        return _settings(self)


def _settings(loss: CrossEntropyLoss | LinearCrossEntropyLoss) -> str:
    return (
        f"ignore_index={loss.ignore_index}, reduction={loss.reduction!r}, "
        f"label_smoothing={loss.label_smoothing}, z_loss={loss.z_loss}"
    )
