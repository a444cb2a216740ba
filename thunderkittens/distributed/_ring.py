"""Tensors on their way around a ring of ranks."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class Ring:
    """The ranks of a group, each of which sends to the next and receives from the one before."""

    def __init__(self, group: "dist.ProcessGroup | None") -> None:
        self.group = group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self._next, self._previous = self._global(self.rank + 1), self._global(self.rank - 1)

    def _global(self, rank: int) -> int:
        rank %= self.ranks
        return rank if self.group is None else dist.get_global_rank(self.group, rank)

    def shift(self, tensors: Sequence[Tensor]) -> "Shift":
        """Begins to send these, and to receive as many of their shapes. All ranks do so alike."""
        sent = [t.contiguous() for t in tensors]
        received = [torch.empty_like(t) for t in sent]
        pairs = zip(sent, received, strict=True)
        messages = [
            dist.P2POp(way, tensor, peer, self.group)
            for here, there in pairs
            for way, tensor, peer in (
                (dist.isend, here, self._next),
                (dist.irecv, there, self._previous),
            )
        ]
        return Shift(sent, received, dist.batch_isend_irecv(messages))


class Shift:
    """What travels; what is sent lives until it has arrived."""

    def __init__(
        self, sent: list[Tensor], received: list[Tensor], works: "list[dist.Work]"
    ) -> None:
        self._sent, self._received, self._works = sent, received, works

    def wait(self) -> list[Tensor]:
        """What the rank before has sent. On a GPU its stream waits, not the host."""
        for work in self._works:
            work.wait()
        return self._received
