"""Calls of linear, for the tests of all ops."""

import torch

import thunderkittens

CALLS = ()
NO_BACKWARD = ("linear", "quantized_linear")  # of ours: their gradients are those of torch's ops
OF_TORCH = ("quantize_weight", "dequantize_weight", "pack_int4", "unpack_int4")
# In the sizes that tests/ops/test_arguments.py gives the others.
CHECKED_BY_OP = {
    "quantized_linear": {
        "weight": torch.ones(8, 4).to(torch.float8_e4m3fn),
        "scale": torch.ones(8),
    }
}
RECORDED = ()
X, WEIGHT = torch.ones(2, 8), torch.ones(4, 8)
WRONG_TYPES = {
    "linear: weight must be a tensor, got None": lambda: thunderkittens.linear(X, None),
    "linear: residual must be a tensor or None, got int 3": (
        lambda: thunderkittens.linear(X, WEIGHT, residual=3)
    ),
    "linear: weight_is_constant must be True or False, got str 'yes'": (
        lambda: thunderkittens.linear(X, WEIGHT, weight_is_constant="yes")
    ),
}
