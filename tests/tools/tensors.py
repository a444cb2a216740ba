"""Dtypes by their short names, and tensors with other strides, for the families' cases."""

import torch

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
SHORT = {FP32: "fp32", FP16: "fp16", BF16: "bf16", FP64: "fp64"}


def lay_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values (of the first row alone when expanded) with other strides."""
    *leading, width = values.shape
    if layout == "contiguous":
        return values
    if layout == "expanded":
        return values[(0,) * len(leading)].expand_as(values)
    if layout == "constant":  # what y.sum().backward() gives: one number, all strides 0
        return values.flatten()[0].expand_as(values)
    if layout == "offset":
        room = values.new_zeros(values.numel() + 1)[1:].view(values.shape)
    elif layout == "sliced":
        room = values.new_zeros(*leading, width + 3)[..., 1 : width + 1]
    elif layout == "stepped":
        room = values.new_zeros(*leading, 2 * width)[..., ::2]
    else:
        room = values.new_zeros(*reversed(leading), width)
        room = room.permute(*reversed(range(len(leading))), len(leading))
    return room.copy_(values)
