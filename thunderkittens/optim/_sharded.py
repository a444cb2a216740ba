"""Parameters that are DTensors: the shards of this rank, and the norm over all ranks."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:  # DTensor takes a second to import
    from torch.distributed.tensor import DTensor


def local(t: Tensor) -> Tensor:
    """A DTensor's shard on this rank; any other tensor as it is."""
    return t.to_local() if _is_dtensor(t) else t  # type: ignore[attr-defined]


def norm_of(params: list[Tensor]) -> Tensor:
    """The norm of the gradients of some parameters, [] of their device.

    Args:
        params: With gradients, all on one device.

    Raises:
        ValueError: A gradient is sharded otherwise than its parameter.
    """
    shares: dict[Any, list[Tensor]] = {}  # by the dimensions of meshes over which they are sharded
    for p in params:
        assert p.grad is not None
        shares.setdefault(_sharding(p), []).append(local(p.grad))
    norm = torch.ops.thunderkittens.adamw_grad_norm
    if list(shares) == [None]:
        return norm(shares[None])  # type: ignore[no-any-return]
    squares = []
    for sharding, grads in shares.items():
        square = norm(grads).square()
        if sharding is not None:
            mesh, dims = sharding
            for dim in dims:
                torch.distributed.all_reduce(square, group=mesh.get_group(dim))
        squares.append(square)
    return torch.stack(squares).sum().sqrt()


def _sharding(p: Tensor) -> tuple[Any, tuple[int, ...]] | None:
    """A mesh and its dimensions that shard the parameter; None: each rank has all of it."""
    grad = p.grad
    if not _is_dtensor(p):
        return None
    param: DTensor = p  # type: ignore[assignment]
    if not _is_dtensor(grad) or grad.placements != param.placements:  # type: ignore[union-attr]
        got = getattr(grad, "placements", "a plain tensor")
        raise ValueError(
            f"AdamW: a gradient must be placed as its parameter, {param.placements}, got {got}"
        )
    dims = tuple(i for i, place in enumerate(param.placements) if not place.is_replicate())
    return (param.device_mesh, dims) if dims else None


def _is_dtensor(t: object) -> bool:
    return hasattr(t, "device_mesh") and hasattr(t, "to_local")
