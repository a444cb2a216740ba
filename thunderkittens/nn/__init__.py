"""Modules with torch's parameter names, so that `load_state_dict` works both ways."""

from thunderkittens.nn.activation import GEGLU, GELU, GatedMLP, SwiGLU
from thunderkittens.nn.based_attention import BasedAttention
from thunderkittens.nn.cross_entropy import CrossEntropyLoss, LinearCrossEntropyLoss
from thunderkittens.nn.hedgehog_attention import HedgehogAttention
from thunderkittens.nn.linear_attention import LinearAttention
from thunderkittens.nn.mamba2 import Mamba2
from thunderkittens.nn.mlp import MLP
from thunderkittens.nn.norm import AddLayerNorm, AddRMSNorm, LayerNorm, RMSNorm
from thunderkittens.nn.quantized_linear import QuantizedLinear
from thunderkittens.nn.rotary import Rotary

__all__ = [
    "GEGLU",
    "GELU",
    "MLP",
    "AddLayerNorm",
    "AddRMSNorm",
    "BasedAttention",
    "CrossEntropyLoss",
    "GatedMLP",
    "HedgehogAttention",
    "LayerNorm",
    "LinearAttention",
    "LinearCrossEntropyLoss",
    "Mamba2",
    "QuantizedLinear",
    "RMSNorm",
    "Rotary",
    "SwiGLU",
]
