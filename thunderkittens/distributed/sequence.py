"""How the ranks of a group share a sequence: in chunks of it, by zigzag or one after another."""

import itertools

import torch
import torch.distributed as dist
from torch import Tensor


def shard_sequence(
    x: Tensor,
    dim: int = 1,
    *,
    group: "dist.ProcessGroup | None" = None,
    causal: bool = True,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """This rank's share of a sequence, as `ring_attention` takes it.

    With `causal` the sequence is cut into 2 · W chunks for W ranks, of which rank r has r and
    2W − 1 − r: a zigzag, by which all ranks have as many scores to compute below the diagonal.
    Without, rank r has the r-th of W chunks. The chunks of a rank stand behind one another.

    Args:
        x: The whole sequence: tokens, positions, rows of rotary's tables, activations.
        dim: Its dimension of positions.
        group: The ranks that share it; None for all.
        causal: As of the attention that it is for.
        cu_seqlens: [sequences + 1], int32 or int64: x is packed, and sequence i of it, from
            cu_seqlens[i] to cu_seqlens[i + 1], is shared as above, so that cu_seqlens // W are
            those of each rank. Read by the host.

    Returns:
        x with 1 / W of its positions, contiguous. Differentiable.

    Raises:
        ValueError: A length is not a multiple of W, with `causal` of 2 · W, or cu_seqlens do not
            count up from 0 to x.size(dim).
        IndexError: x has no such dimension.

    Example:
        Of 8 positions on 2 ranks, rank 0 has 0, 1, 6 and 7, and rank 1 the rest; alone it has all.

        >>> import torch, torch.distributed as dist, thunderkittens
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> thunderkittens.distributed.shard_sequence(torch.arange(8), dim=0)
        tensor([0, 1, 2, 3, 4, 5, 6, 7])
        >>> dist.destroy_process_group()
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    lengths = _lengths("shard_sequence", x, dim, cu_seqlens, x.size(dim))
    _check_lengths("shard_sequence", lengths, ranks, causal)
    return x.index_select(dim, positions_of(rank, ranks, lengths, causal).to(x.device))


def unshard_sequence(
    x: Tensor,
    dim: int = 1,
    *,
    group: "dist.ProcessGroup | None" = None,
    causal: bool = True,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """The whole sequence of which each rank has a share: the inverse of `shard_sequence`.

    Args:
        x: This rank's share, of one shape and dtype on all ranks.
        dim: Its dimension of positions.
        group: The ranks that share it; None for all.
        causal: As when it was sharded.
        cu_seqlens: As when it was sharded: those of the whole.

    Returns:
        The whole, the same on each rank, contiguous.

    Raises:
        ValueError: x needs a gradient, which does not pass through here, or the share's length is
            not that of a share of these sequences.
        IndexError: x has no such dimension.
    """
    ranks = dist.get_world_size(group)
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "unshard_sequence: x must not need a gradient, which would be each rank's own, got one "
            "that does; unshard x.detach()"
        )
    lengths = _lengths("unshard_sequence", x, dim, cu_seqlens, x.size(dim) * ranks)
    _check_lengths("unshard_sequence", lengths, ranks, causal)
    shares = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(ranks)]
    dist.all_gather(shares, x.contiguous(), group=group)
    found = [positions_of(rank, ranks, lengths, causal) for rank in range(ranks)]
    return torch.cat(shares, dim).index_select(dim, torch.cat(found).argsort().to(x.device))


def positions_of(rank: int, ranks: int, lengths: list[int], causal: bool) -> Tensor:
    """Which positions a rank has, int64 [sum(lengths) / ranks] on the CPU.

    Args:
        rank: The rank.
        ranks: How many there are.
        lengths: Of sequences that lie behind one another.
        causal: By zigzag.
    """
    found, first = [], 0
    for length in lengths:
        chunks = torch.arange(first, first + length).chunk(2 * ranks if causal else ranks)
        if length > 0:
            found += [chunks[rank], chunks[-1 - rank]] if causal else [chunks[rank]]
        first += length
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


def _lengths(op: str, x: Tensor, dim: int, cu_seqlens: Tensor | None, length: int) -> list[int]:
    """Those of the sequences that have `length` positions together."""
    if cu_seqlens is None:
        return [length]
    if cu_seqlens.dim() != 1 or cu_seqlens.is_floating_point():
        raise ValueError(
            f"{op}: cu_seqlens must be int32 or int64 [sequences + 1], got {cu_seqlens.dtype} "
            f"{list(cu_seqlens.shape)}"
        )
    ends = cu_seqlens.tolist()
    lengths = [b - a for a, b in itertools.pairwise(ends)]
    if ends[:1] != [0] or ends[-1] != length or min(lengths, default=0) < 0:
        raise ValueError(f"{op}: cu_seqlens must count up from 0 to {length}, got {ends}")
    return lengths


def _check_lengths(op: str, lengths: list[int], ranks: int, causal: bool) -> None:
    chunks = 2 * ranks if causal else ranks
    wrong = [n for n in lengths if n % chunks]
    if wrong:
        way = "2 chunks for each" if causal else "a chunk for each"
        raise ValueError(
            f"{op}: a sequence's length must be a multiple of {chunks}, {way} of {ranks} ranks, "
            f"got {wrong[0]}; pad it"
        )
