"""Parameters that are DTensors: the shards of this rank, and the norm over all ranks."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:  # DTensor takes a second to import
    from torch.distributed.tensor import DTensor


def local(t: Tensor) -> Tensor:
    """A DTensor's shard on this rank; any other tensor as it is."""
    return t.to_local() if _is_dtensor(t) else t  # type: ignore[attr-defined]


def local_gradient(p: Tensor) -> Tensor:
    """The gradient of a parameter's shard on this rank.

    One that is placed otherwise is redistributed: tensor parallelism leaves sums to be made, of
    norms' weights for one, and gives gradients of a sharded embedding whole.

    Raises:
        ValueError: The parameter is a DTensor, and its gradient is not.
    """
    grad = p.grad
    assert grad is not None
    if not _is_dtensor(p):
        return local(grad)
    param: DTensor = p  # type: ignore[assignment]
    if not _is_dtensor(grad):
        raise ValueError("AdamW: the gradient of a DTensor must be one, got a plain tensor")
    sharded: DTensor = grad  # type: ignore[assignment]
    if sharded.placements != param.placements:
        sharded = sharded.redistribute(placements=param.placements)
    return sharded.to_local()


def norm_of(params: list[Tensor], grads: list[Tensor]) -> Tensor:
    """The norm of the gradients of some parameters, [] of their device.

    Args:
        params: All on one device.
        grads: Of each what `local_gradient` gives.
    """
    shares: dict[Any, list[Tensor]] = {}  # by the dimensions of meshes over which they are sharded
    for p, grad in zip(params, grads, strict=True):
        shares.setdefault(_sharding(p), []).append(grad)
    norm = torch.ops.thunderkittens.adamw_grad_norm
    if list(shares) == [None]:
        return norm(shares[None])  # type: ignore[no-any-return]
    squares = []
    for sharding, of_them in shares.items():
        square = norm(of_them).square()
        if sharding is not None:
            mesh, dims = sharding
            for dim in dims:
                torch.distributed.all_reduce(square, group=mesh.get_group(dim))
        squares.append(square)
    return torch.stack(squares).sum().sqrt()


def _sharding(p: Tensor) -> tuple[Any, tuple[int, ...]] | None:
    """A mesh and its dimensions that shard the parameter; None: each rank has all of it."""
    if not _is_dtensor(p):
        return None
    param: DTensor = p  # type: ignore[assignment]
    dims = tuple(i for i, place in enumerate(param.placements) if not place.is_replicate())
    return (param.device_mesh, dims) if dims else None


def _is_dtensor(t: object) -> bool:
    return hasattr(t, "device_mesh") and hasattr(t, "to_local")
