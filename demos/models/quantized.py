"""A model's weights of 8 or 4 bits a number, rounded to the nearest: no data decides how."""

import torch
from torch import Tensor, nn

from models.llama import Linear, Llama
from thunderkittens import dequantize_weight
from thunderkittens.nn import QuantizedLinear

FORMATS = {"fp8": torch.float8_e4m3fn, "int4": "int4"}
GROUPS = (128, 64, 32, 16, 8)  # columns that share a scale of int4: the largest that fits


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
                setattr(block, name, quantized(layer, form))


def quantized(layer: Linear, form: str) -> QuantizedLinear:
    """The layer with fewer bits."""
    width = layer.weight.shape[1]
    group = next((size for size in GROUPS if width % size == 0), None)
    if form == "int4" and group is None:
        raise ValueError(f"int4 needs widths that are multiples of 8, and one is {width}")
    return QuantizedLinear.from_linear(
        layer,
        FORMATS[form],
        group_size=group or width,
        weight_is_constant=layer.weight_is_constant,
    )


def weight_of(layer: Linear | QuantizedLinear) -> Tensor:
    """What a layer multiplies with, [N, K] of floats."""
    if isinstance(layer, QuantizedLinear):
        return dequantize_weight(layer.weight, layer.scale, layer.zero)
    return layer.weight


def count_parameters(model: nn.Module) -> int:
    """Numbers that were trained, however many bits they have."""
    count = sum(parameter.numel() for parameter in model.parameters())
    for layer in model.modules():
        if isinstance(layer, QuantizedLinear):
            of_byte = 2 if layer.weight.dtype == torch.uint8 else 1
            count += of_byte * layer.weight.numel()
    return count
