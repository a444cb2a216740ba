"""Modules with torch's parameter names, so that `load_state_dict` works both ways."""

from thunderkittens.nn.cross_entropy import CrossEntropyLoss, LinearCrossEntropyLoss
from thunderkittens.nn.norm import LayerNorm

__all__ = ["CrossEntropyLoss", "LayerNorm", "LinearCrossEntropyLoss"]
