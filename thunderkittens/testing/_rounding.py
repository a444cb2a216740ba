"""What rounding may do: units, floors and sums of a dtype."""

import math

import torch


def unit(dtype: torch.dtype) -> float:
    """Half the distance of 1 to the number before it: 2⁻⁹ for bfloat16, 2⁻¹² for float16.

    Rounding to nearest is off by at most 2 · unit · |value|.
    """
    return torch.finfo(dtype).eps / 4


def floor(dtype: torch.dtype) -> float:
    """The smallest positive number of a dtype: what rounding may lose near zero."""
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def accumulation(length: int, dtype: torch.dtype = torch.float32) -> float:
    """Relative error of a sum of `length` terms of mixed rounding errors, added up in any order."""
    return torch.finfo(dtype).eps / 2 * (8 + 2 * math.sqrt(length))
