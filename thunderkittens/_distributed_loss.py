"""Cross entropy of logits that DTensor has sharded, on rows, on columns or both.

With a vocabulary that is sharded, each process makes the log-sum-exp lse_r of its own columns, of
which one all_gather makes the whole row's: lse = log Σ exp(lse_r). The kernel's gradient of a shard
is exp(x − lse_r), but for the column that it takes for the target; times exp(lse_r − lse) it is the
row's. That column is the largest of the shard, so that loss_r = lse_r − max, from which lse_r
comes, has no cancellation; its gradient and the target's are then put in from float32.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import torch
import torch.distributed._functional_collectives as collectives
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._redistribute import redistribute_local_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

_ops = torch.ops.thunderkittens


def handlers() -> dict[torch._ops.OpOverload, Callable[..., DTensor | tuple[DTensor, DTensor]]]:
    """What DTensor calls instead of its own rules for an op."""
    return {
        _ops.cross_entropy.default: _loss,
        _ops.cross_entropy.plain: _loss,  # in inference mode
        _ops.cross_entropy_.default: _loss,
        _ops.cross_entropy_forward.default: _loss_and_gradient,
        _ops.cross_entropy_forward_.default: _loss_and_gradient_in_place,
    }


@dataclasses.dataclass
class _Options:
    """The options of a call, by torch's schema."""

    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0
    z_loss: float = 0.0


def _loss(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> DTensor:
    return _Call(*args, **kwargs).compute(wants_gradient=False)[0]


def _loss_and_gradient(
    op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[DTensor, DTensor]:
    return _Call(*args, **kwargs).compute(wants_gradient=True)


def _loss_and_gradient_in_place(
    op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> DTensor:
    call = _Call(*args, **kwargs)
    if call.logits is not args[0]:
        raise ValueError(
            "cross_entropy: logits must be sharded on rows, columns or not at all, to be written "
            f"in place, got {args[0].placements}"
        )
    loss, gradient = call.compute(wants_gradient=True)
    call.logits._local_tensor.copy_(gradient._local_tensor)
    return loss


class _Call:
    """A call, with its logits and targets where it computes with them."""

    def __init__(self, logits: Tensor, targets: Tensor, *options: Any, **named: Any) -> None:
        self.options = _Options(*options, **named)
        mesh = next(t.device_mesh for t in (logits, targets) if isinstance(t, DTensor))
        logits, targets = _distributed(logits, mesh), _distributed(targets, mesh)
        self.mesh, columns = mesh, logits.ndim - 1
        placements = [_normal(p, logits.ndim) for p in logits.placements]
        sharded = [i for i, p in enumerate(placements) if p.is_shard(columns)]
        for i in sharded[1:]:  # columns on one dimension of the mesh
            placements[i] = Replicate()
        self.columns_of = sharded[0] if sharded else None
        of_rows: list[Placement] = [
            p if isinstance(p, Shard) and p.dim < columns else Replicate() for p in placements
        ]
        self.rows_of = [i for i, p in enumerate(of_rows) if p.is_shard()]
        self.logits = _redistributed(logits, placements)
        self.placements, self.row_placements = placements, of_rows
        self.targets = _redistributed(targets, of_rows)._local_tensor

    @overload
    def compute(self, wants_gradient: Literal[True]) -> tuple[DTensor, DTensor]: ...

    @overload
    def compute(self, wants_gradient: Literal[False]) -> tuple[DTensor, None]: ...

    def compute(self, wants_gradient: bool) -> tuple[DTensor, DTensor | None]:
        """The loss and, as if the loss's own gradient were 1, that of the logits."""
        o, logits, targets = self.options, self.logits._local_tensor, self.targets
        if self.columns_of is not None:
            loss, gradient = self._of_columns(self.columns_of, wants_gradient)
        else:  # the op itself, without a mean
            reduction = "none" if o.reduction == "none" else "sum"
            given = (logits, targets, o.ignore_index, reduction, o.label_smoothing, o.z_loss)
            if wants_gradient:
                loss, gradient = _ops.cross_entropy_forward(*given)
            else:
                loss, gradient = _ops.cross_entropy(*given), None
            if o.reduction == "mean":
                count = self._count().to(loss.dtype)
                loss = loss / count
                if gradient is not None:
                    factor = count.reciprocal().expand(targets.shape)
                    _ops.cross_entropy_backward_(gradient, factor)
        if o.reduction == "none":
            loss = self._wrap(loss, self.targets_shape, self.row_placements)
        else:
            summed: list[Placement] = [
                Partial() if p.is_shard() else p for p in self.row_placements
            ]
            loss = self._wrap(loss, torch.Size(), summed)
        if gradient is not None:
            gradient = self._wrap(gradient, self.logits.shape, self.placements)
        return loss, gradient

    @property
    def targets_shape(self) -> torch.Size:
        return self.logits.shape[:-1]

    def _of_columns(self, dim: int, wants_gradient: bool) -> tuple[Tensor, Tensor | None]:
        """Of columns that a dimension of the mesh shards: the rows' loss, reduced, and gradient."""
        o, logits = self.options, self.logits._local_tensor
        vocabulary, width = self.logits.shape[-1], logits.shape[-1]
        ignored = self.targets == o.ignore_index
        outside = ~ignored & ((self.targets < 0) | (self.targets >= vocabulary))
        self._check(outside)
        column = self.targets.long() - self._first_column()
        is_here = (column >= 0) & (column < width) & ~ignored

        top, lse_here, gradient, at = _of_shard(logits, wants_gradient)
        stats = [lse_here, torch.zeros_like(lse_here)]
        if at is not None:  # there are columns here
            column = torch.where(is_here, column, at)
            target = logits.gather(-1, column.unsqueeze(-1)).squeeze(-1).to(top.dtype)
            stats[1] = torch.where(is_here, target, 0)
        if o.label_smoothing:
            stats.append(logits.sum(-1, dtype=top.dtype))
        group = (self.mesh, dim)
        everyone = collectives.all_gather_tensor(torch.stack(stats).unsqueeze(0), 0, group)
        lse, x_target = everyone[:, 0].logsumexp(0), everyone[:, 1].sum(0)

        even, certain = o.label_smoothing / vocabulary, 1 - o.label_smoothing
        losses = lse - certain * x_target + o.z_loss * lse.square()
        if o.label_smoothing:
            losses = losses - even * everyone[:, 2].sum(0)
        losses = losses.masked_fill(outside, math.nan).masked_fill(ignored, 0)
        count = self._count().to(losses.dtype) if o.reduction == "mean" else 1
        loss = losses if o.reduction == "none" else losses.sum() / count
        if gradient is None or at is None:
            return loss, gradient

        weight = torch.ones_like(lse).masked_fill(outside, math.nan).masked_fill(ignored, 0) / count
        slope = weight * (1 + 2 * o.z_loss * lse)
        _ops.cross_entropy_backward_(gradient, slope * (lse_here - lse).exp())
        blind = (top == -math.inf) & (lse != -math.inf)  # here, but not everywhere
        gradient.masked_fill_((blind | ignored).unsqueeze(-1), 0)
        if even:
            gradient.sub_((weight * even).unsqueeze(-1).masked_fill(ignored.unsqueeze(-1), 0))

        def put(where: Tensor, x: Tensor, goal: Tensor | float) -> None:
            value = (slope * (x - lse).exp() - weight * goal).masked_fill(ignored, 0)
            gradient.scatter_(-1, where.unsqueeze(-1), value.unsqueeze(-1).to(gradient.dtype))

        put(at, top, even)
        put(column, target, even + certain * is_here)
        return loss, gradient

    def _first_column(self) -> int:
        shape, mesh = self.logits.shape, self.mesh
        return compute_local_shape_and_global_offset(shape, mesh, self.placements)[1][-1]

    def _check(self, outside: Tensor) -> None:
        if outside.is_cpu and bool(outside.any()):
            raise IndexError(
                f"cross_entropy: targets must be >= 0 and < {self.logits.shape[-1]} "
                f"(logits.size(-1)) or {self.options.ignore_index} (ignore_index), got "
                f"{int(self.targets[outside][0])}"
            )

    def _count(self) -> Tensor:
        """How many rows of the whole count."""
        count = (self.targets != self.options.ignore_index).sum()
        for dim in self.rows_of:
            count = collectives.all_reduce(count, "sum", (self.mesh, dim))
        return count

    def _wrap(self, local: Tensor, shape: torch.Size, placements: list[Placement]) -> DTensor:
        strides = torch.empty(shape, device="meta").stride()
        return _wrapped(local, self.mesh, placements, TensorMeta(shape, strides, local.dtype))


def _of_shard(
    logits: Tensor, wants_gradient: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Each row's largest logit, log-sum-exp and gradient, with the largest's column as target."""
    type_ = torch.float64 if logits.dtype == torch.float64 else torch.float32
    if logits.shape[-1] == 0:
        nothing = logits.new_full(logits.shape[:-1], -math.inf, dtype=type_)
        return nothing, nothing, logits.new_empty(logits.shape) if wants_gradient else None, None
    top, at = logits.max(-1)
    given, gradient = (logits, at, -100, "none"), None
    if wants_gradient:
        loss, gradient = _ops.cross_entropy_forward(*given)
    else:
        loss = _ops.cross_entropy(*given)
    top = top.to(type_)
    lse = (loss + top).masked_fill(top == -math.inf, -math.inf)
    return top, lse, gradient, at


def _distributed(t: Tensor, mesh: DeviceMesh) -> DTensor:
    """A tensor that is no DTensor is the same everywhere."""
    if isinstance(t, DTensor):
        return t
    meta = TensorMeta(t.shape, t.stride(), t.dtype)
    return _wrapped(t, mesh, [Replicate()] * mesh.ndim, meta)


# What follows is below autograd, where the methods of DTensor do not work.
def _wrapped(
    local: Tensor, mesh: DeviceMesh, placements: list[Placement], meta: TensorMeta
) -> DTensor:
    spec = DTensorSpec(mesh, tuple(placements), tensor_meta=meta)
    return DTensor(local, spec, requires_grad=False)


def _redistributed(t: DTensor, placements: list[Placement]) -> DTensor:
    if tuple(placements) == tuple(t.placements):
        return t
    to = DTensorSpec(t.device_mesh, tuple(placements), tensor_meta=t._spec.tensor_meta)
    return DTensor(redistribute_local_tensor(t._local_tensor, t._spec, to), to, requires_grad=False)


def _normal(p: Placement, ndim: int) -> Placement:
    """A placement that rows or columns can be computed with."""
    return Shard(p.dim % ndim) if type(p) is Shard else Replicate()
