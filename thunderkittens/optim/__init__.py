"""Optimizers with torch's interface, a launch for all parameters."""

from thunderkittens.optim.adamw import AdamW

__all__ = ["AdamW"]
