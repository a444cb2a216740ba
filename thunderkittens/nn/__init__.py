"""Modules with torch's parameter names, so that `load_state_dict` works both ways."""

from thunderkittens.nn.norm import AddLayerNorm, AddRMSNorm, LayerNorm, RMSNorm

__all__ = ["AddLayerNorm", "AddRMSNorm", "LayerNorm", "RMSNorm"]
