"""Attention over a sequence that several processes share, and how they share it."""

from thunderkittens.distributed.ring_attention import ring_attention
from thunderkittens.distributed.sequence import shard_sequence, unshard_sequence

__all__ = ["ring_attention", "shard_sequence", "unshard_sequence"]
