"""A model's weights of 8 or 4 bits a number, rounded to the nearest: no data decides how."""

from typing import Any

import torch
from torch import Tensor, nn

from models.llama import Linear, Llama
from thunderkittens import quantize_weight, quantized_linear

FORMATS = {"fp8": torch.float8_e4m3fn, "int4": "int4"}
GROUPS = (128, 64, 32, 16, 8)  # columns that share a scale of int4: the largest that fits


class QuantizedLinear(nn.Module):
    """A `Linear` whose weight is fp8 (e4m3, a scale a row), or int4 (a scale a group)."""

    weight: Tensor
    scale: Tensor
    zero: Tensor | None

    def __init__(self, of: Linear, form: str):
        super().__init__()
        width = of.weight.shape[1]
        group = next((size for size in GROUPS if width % size == 0), 0)
        if form == "int4" and group == 0:
            raise ValueError(f"int4 needs widths that are multiples of 8, and one is {width}")
        made = quantize_weight(of.weight.detach(), FORMATS[form], group_size=group)
        for name, tensor in made._asdict().items():
            self.register_buffer(name, tensor)
        self.bias = of.bias

    def forward(self, x: Tensor, **around: Any) -> Tensor:
        """As Linear's."""
        return quantized_linear(x, self.weight, self.scale, self.zero, self.bias, **around)


@torch.no_grad()
def quantize(model: Llama, form: str) -> None:
    """Replaces the products of all blocks, one after the other; embedding and head stay.

    Args:
        model: In the dtype that it computes in.
        form: "fp8" or "int4".

    Raises:
        ValueError: A width is no multiple of 8, with int4.
    """
    for block in model.blocks:
        for name, layer in list(block.named_children()):
            if isinstance(layer, Linear):
                setattr(block, name, QuantizedLinear(layer, form))


def count_parameters(model: nn.Module) -> int:
    """Numbers that were trained, however many bits they have."""
    count = sum(parameter.numel() for parameter in model.parameters())
    for layer in model.modules():
        if isinstance(layer, QuantizedLinear):
            of_byte = 2 if layer.weight.dtype == torch.uint8 else 1
            count += of_byte * layer.weight.numel()
    return count
