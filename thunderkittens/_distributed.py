"""What DTensor has to be told of our ops: on which dimensions a call may be sharded.

One rule, from the ops' descriptions, as vmap has (csrc/binding/vmap.h). Rows ("*") are independent,
so norms, activations and losses may be sharded on any dimension in front of the last (sequence
parallelism); so is the batch ("B") of attention and rotary, and so are their heads, if those of the
keys divide evenly. What all rows share, as a weight, is replicated, and its gradient Partial; so is
the one head of keys that all others read.
Rotary may also be sharded on the sequence together with its tables, where they are as long as it.

Cross entropy computes with its logits where they are, sharded on rows, on columns (a sharded
vocabulary) or both: `_distributed_loss.py`.

A step of linear attention and its relatives writes its state where that is: sharded on heads, or on
the batch unless slots of it are chosen by index.

All else is replicated first: packed sequences, dropout, and the mean over sharded rows of
linear_cross_entropy.
"""

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from thunderkittens._C import descriptions
from thunderkittens._when_imported import when_imported

if TYPE_CHECKING:  # DTensor takes a second to import
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Placement
    from torch.distributed.tensor._dtensor_spec import DTensorSpec
    from torch.distributed.tensor._op_schema import OpSchema, OpStrategy

_HEADS = ("H", "Hq", "Hk")
_READERS = ("H", "Hq")  # of keys' heads
# Where one is given, rows are not independent.
_TIES = ("seed", "cu_seqlens_q", "cu_seqlens", "page_table")
_BATCH = ("B",)
_SLOTS = ("B", "N", "M")  # with the first dimension of a state that a step updates

# The placement of a tensor by the names of its dimensions; None where it is replicated.
_Way = Callable[[list[str]], "Placement | None"]


def register_sharding_strategies() -> None:
    """Registers our ops' strategies: now, if DTensor is there, or else when it is imported."""
    when_imported("torch.distributed.tensor", _register, needs="DTensor")


def _register(dtensor: ModuleType) -> None:
    from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, RuntimeSchemaInfo
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

    from thunderkittens import _distributed_loss

    dispatcher = dtensor.DTensor._op_dispatcher
    described = descriptions()
    for name, (arguments, results) in described.items():
        op = getattr(torch.ops.thunderkittens, name).default
        if op._schema.is_mutable and not name.endswith("_step"):
            continue
        of_forward = described[name.removesuffix("_backward")][1]
        call = _Call(dtensor, op, arguments, results, of_forward)

        def strategy(schema: OpSchema, call: _Call = call) -> OpStrategy:
            found = expand_to_full_mesh_op_strategy(
                schema.get_mesh_from_args(),
                schema,
                call.shardings(schema),
                input_index=len(call.results),
            )
            return call.in_place(found, schema)

        options = [a.name for a in op._schema.arguments if a.kwarg_only]
        known = RuntimeSchemaInfo(static_argnum=0, static_kwargkey=options, needs_pytree=True)
        dispatcher.sharding_propagator.register_op_strategy(op, strategy, known)
    dispatcher._custom_op_handlers.update(_distributed_loss.handlers())


class _Call:
    """The placements that an op may be called with, on one dimension of a mesh."""

    def __init__(
        self,
        dtensor: ModuleType,
        op: torch._ops.OpOverload,
        arguments: dict[str, str],
        results: list[tuple[str, str, str]],
        of_forward: list[tuple[str, str, str]],
    ) -> None:
        self.op = op
        self.shard, self.partial, self.replicate = dtensor.Shard, dtensor.Partial, dtensor.Replicate
        self.names = [a.name for a in op._schema.arguments]
        self.defaults = {a.name: a.default_value for a in op._schema.arguments}
        self.dims = {name: shape.split(",") for name, shape in arguments.items()}
        self.results = [(name, like, shape.split(",")) for name, like, shape in results]
        # Whether heads that read one head of keys may be apart: no result is of the keys' heads.
        self.shares_keys = all(
            any(d in _READERS for d in shape.split(",")) for _, _, shape in of_forward
        )
        self.written = [a.name for a in op._schema.arguments if a.is_write]

    def shardings(self, schema: "OpSchema") -> list[list["Placement | None"]]:
        """All of them, as placements of the results and then of the arguments."""
        given: dict[str, Any] = dict(zip(self.names, schema.args_schema, strict=False))
        given |= schema.kwargs_schema
        tensors: dict[str, DTensorSpec] = {
            name: value.strategies[0].output_spec
            for name, value in given.items()
            if hasattr(value, "strategies")
        }
        option = self.defaults | given
        ways: list[_Way] = [_replicated]
        independent = not any(name in tensors for name in _TIES)
        if independent and option.get("reduction", "none") != "mean":
            ways += self._of_rows(tensors)
            if "state" not in tensors:
                ways += self._of_dim(_BATCH, tensors)
            elif "state_indices" not in tensors:
                ways += self._of_dim(_SLOTS, tensors)
            if self.shares_keys and self._sizes("Hk", tensors) == {1}:
                ways += self._of_dim(_READERS, tensors)
            elif _divide_evenly(self._sizes("Hk", tensors), schema.get_mesh_from_args()):
                ways += self._of_dim(_HEADS, tensors)
            ways += self._of_sequence(tensors, option)
        if "gradient" in tensors:  # the backward of cross entropy: columns are independent too
            of_columns = self.shard(tensors["gradient"].ndim - 1)
            for place in (of_columns, self.partial()):  # and it is linear in the gradient
                ways.append(_where(-1, "V", place))
        return [self._placements(way, given, tensors, option) for way in ways]

    def in_place(self, found: "OpStrategy", schema: "OpSchema") -> "OpStrategy":
        """The strategies that leave what is written where it is: a copy of it would be lost."""
        if not self.written:
            return found
        there = [
            (n, v.strategies[0].output_spec.placements)
            for n, v in zip(self.names, schema.args_schema, strict=False)
            if hasattr(v, "strategies")
        ]
        found.strategies = [
            s
            for s in found.strategies
            if all(
                spec.placements == placements
                for spec, (name, placements) in zip(s.input_specs or (), there, strict=True)
                if name in self.written
            )
        ]
        if not found.strategies:
            places = ", ".join(f"{n}: {p}" for n, p in there if n in self.written)
            raise NotImplementedError(
                f"{self.op.name()}: what is updated in place may be replicated, or sharded on "
                f"heads or, where there are no state_indices, on the batch, got {places}"
            )
        return found

    def _of_rows(self, tensors: dict[str, "DTensorSpec"]) -> list[_Way]:
        first = next((n for n in tensors if self.dims[n][0] == "*"), None)
        if first is None:
            return []
        leading = tensors[first].ndim - (len(self.dims[first]) - 1)
        return [_where(0, "*", self.shard(i)) for i in range(leading)]

    def _of_dim(self, names: tuple[str, ...], tensors: dict[str, "DTensorSpec"]) -> list[_Way]:
        def way(dims: list[str]) -> "Placement | None":
            return next((self.shard(i) for i, d in enumerate(dims) if d in names), None)

        return [way] if any(way(self.dims[n]) for n in tensors) else []

    def _of_sequence(self, tensors: dict[str, "DTensorSpec"], option: dict[str, Any]) -> list[_Way]:
        """Of rotary: row p of the tables is for token p."""
        if "cos" not in tensors or "offsets" in tensors or option["offset"] != 0:
            return []
        if tensors["cos"].shape[0] != tensors["q"].shape[1]:
            return []
        places = {"S": self.shard(1), "T": self.shard(0)}
        return [lambda dims: next((places[d] for d in dims if d in places), None)]

    def _sizes(self, dim: str, tensors: dict[str, "DTensorSpec"]) -> set[int]:
        found = ((self.dims[n], t) for n, t in tensors.items() if dim in self.dims[n])
        return {t.shape[dims.index(dim)] for dims, t in found}

    def _placements(
        self,
        way: _Way,
        given: dict[str, Any],
        tensors: dict[str, "DTensorSpec"],
        option: dict[str, Any],
    ) -> list["Placement | None"]:
        """Of the results, and of what is given; a result that all rows add to is Partial."""
        needs = option.get("needs") or []
        first = len(self.results) - len(needs)
        placements: list[Placement | None] = []
        for i, (name, like, dims) in enumerate(self.results):
            is_wanted = (i < first or needs[i - first]) and (not like or like in tensors)
            is_sum = name == "loss" and option.get("reduction", "none") == "sum"
            if way is _replicated or not is_wanted:
                placements.append(self.replicate())
            else:
                placements.append((None if is_sum else way(dims)) or self.partial())
        return placements + [
            way(self.dims[n]) or self.replicate() if n in tensors else None for n in given
        ]


def _replicated(dims: list[str]) -> None:
    """The way to place all that is always there."""


def _where(i: int, name: str, place: "Placement") -> _Way:
    """The way to place what has that name for its dimension i."""
    return lambda dims: place if dims[i] == name else None


def _divide_evenly(sizes: set[int], mesh: "DeviceMesh") -> bool:
    """Whether shards of the keys' heads are alike, whichever dimensions of the mesh shard them.

    Only then does each shard of the query heads read the key heads beside it.
    """
    lengths = [mesh.size(i) for i in range(mesh.ndim)]
    products = {
        torch.Size(chosen).numel()
        for n in range(1, len(lengths) + 1)
        for chosen in itertools.combinations(lengths, n)
    }
    # More shards than heads are never made.
    return all(heads % p == 0 for heads in sizes for p in products if p <= heads)
