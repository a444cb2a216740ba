"""Layers for `kernelize` of Hugging Face's kernels, which replaces forwards by the layers' names.

`thunderkittens.integrations.transformers.apply` does more: rotary embedding, gated products and the
loss have no layer of their own there, or one name for several formulas.

Example:
    from kernels import Mode, kernelize, use_kernel_mapping
    from thunderkittens.integrations.kernels import mapping

    with use_kernel_mapping(mapping()):
        model = kernelize(model, mode=Mode.TRAINING | Mode.TORCH_COMPILE)
"""

import dataclasses

from torch import Tensor, nn

from thunderkittens.integrations.transformers._forwards import gemma_norm, llama_norm
from thunderkittens.ops.activation import gelu

__all__ = ["Layer", "mapping"]


class _RMSNorm(nn.Module):
    """Of LlamaRMSNorm and its like: rounded before the product with weight."""

    can_torch_compile = has_backward = True
    weight: Tensor  # these are the replaced module's
    variance_epsilon: float
    eps: float

    def forward(self, hidden_states: Tensor) -> Tensor:
        eps = self.variance_epsilon if hasattr(self, "variance_epsilon") else self.eps
        return llama_norm(hidden_states, self.weight, eps)


class _RMSNormZeroCentered(nn.Module):
    """Of weights stored about zero, rounded once."""

    can_torch_compile = has_backward = True
    weight: Tensor
    eps: float

    def forward(self, x: Tensor) -> Tensor:
        return gemma_norm(x, self.weight, self.eps)


class _GELU(nn.Module):
    can_torch_compile = has_backward = True

    def forward(self, input: Tensor) -> Tensor:
        return gelu(input, approximate="none")


class _GELUTanh(nn.Module):
    can_torch_compile = has_backward = True

    def forward(self, input: Tensor) -> Tensor:
        return gelu(input, approximate="tanh")


_LAYERS = {
    "RMSNorm": _RMSNorm,
    "RMSNormZeroCentered": _RMSNormZeroCentered,
    "GeLU": _GELU,
    "GeluTanh": _GELUTanh,
    "NewGELU": _GELUTanh,
}


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer of ours where kernels takes a repository; nothing is downloaded.

    Attributes:
        layer_name: As in `use_kernel_forward_from_hub`.
    """

    layer_name: str

    def load(self) -> type[nn.Module]:
        """The class whose forward `kernelize` takes."""
        return _LAYERS[self.layer_name]

    def __str__(self) -> str:
        return f"thunderkittens (layer `{self.layer_name}`)"


def mapping(device: str = "cuda") -> dict[str, dict[str, Layer]]:
    """Our layers by name, for `use_kernel_mapping` and `register_kernel_mapping` of kernels.

    "RMSNorm", "RMSNormZeroCentered", "GeLU", "GeluTanh" and "NewGELU", for inference, training and
    torch.compile.

    Args:
        device: The type of device to register them for, as kernels calls it.

    Returns:
        A layer for each name and the device.

    Numerics:
        "RMSNorm" rounds as Llama's does. A few models that share the name round once at the end;
        in 16 bit ours then differs from theirs by a rounding.

    Example:
        >>> from thunderkittens.integrations.kernels import mapping
        >>> print(mapping()["RMSNorm"]["cuda"])
        thunderkittens (layer `RMSNorm`)
    """
    return {name: {device: Layer(name)} for name in _LAYERS}
