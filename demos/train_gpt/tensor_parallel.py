"""GPT-2 by tensor and sequence parallelism: which DTensor each of its parameters becomes.

c_attn, c_fc    columns: heads of q, k and v, and of the MLP's hidden layer
c_proj          rows; its results are summed and cut along the sequence, by one reduce-scatter
wte             rows: the vocabulary, of the classifier too, and so of the loss
layer norms     whole; each rank adds up and normalises its part of the sequence
"""

from models.gpt2 import GPT2
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    parallelize_module,
)

SEQUENCE, ALL = Shard(1), Replicate()


class _Conv1D(ParallelStyle):
    """Of a Conv1D, whose weight is [in, out]: the placements of its parameters."""

    def __init__(self, weight: Placement, bias: Placement):
        super().__init__()
        self.placements = {"weight": weight, "bias": bias}

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh, self.cut, self.enter, self.leave)

    def cut(self, _name: str, module: nn.Module, mesh: DeviceMesh) -> None:
        """Makes DTensors of the parameters."""
        for name, place in self.placements.items():
            parameter = getattr(module, name)
            shard = distribute_tensor(parameter, mesh, [place])
            module.register_parameter(name, nn.Parameter(shard))

    def enter(self, _module: nn.Module, inputs: tuple, _mesh: DeviceMesh) -> tuple:
        """What forward gets: here, what it is given."""
        return inputs

    def leave(self, _module: nn.Module, output: DTensor, _mesh: DeviceMesh) -> Tensor:
        """What the caller gets: here, this rank's share."""
        return output.to_local()


class Columns(_Conv1D):
    """All of x, [B, S, in], to this rank's [B, S, out / ranks]."""

    def __init__(self) -> None:
        super().__init__(Shard(1), Shard(0))


class Rows(_Conv1D):
    """This rank's [B, S, in / ranks] to its part of the sequence, [B, S / ranks, out]."""

    def __init__(self) -> None:
        super().__init__(Shard(0), ALL)

    def enter(self, _module: nn.Module, inputs: tuple, mesh: DeviceMesh) -> tuple:
        """This rank's share as a DTensor."""
        return (DTensor.from_local(inputs[0], mesh, [Shard(2)]),)

    def leave(self, _module: nn.Module, output: DTensor, _mesh: DeviceMesh) -> Tensor:
        """The sums over ranks, a part of the sequence to each."""
        return output.redistribute(placements=[SEQUENCE])


class Whole(ParallelStyle):
    """Of a norm: all of its parameters on each rank, x and the residual stream as they come."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh)


def shard(model: GPT2, device: str, ranks: int) -> None:
    """Makes DTensors of all parameters; the columns of c_attn are in the order of ranks."""
    mesh = init_device_mesh(device, (ranks,))
    gathered = {"input_layouts": (SEQUENCE, None), "desired_input_layouts": (ALL, None)}
    plan = {
        "ln_1": Whole(),
        "attn": PrepareModuleInput(**gathered),
        "attn.c_attn": Columns(),
        "attn.c_proj": Rows(),
        "ln_2": Whole(),
        "mlp": PrepareModuleInput(input_layouts=SEQUENCE, desired_input_layouts=ALL),
        "mlp.c_fc": Columns(),
        "mlp.c_proj": Rows(),
    }
    for block in model.transformer.h:
        parallelize_module(block, mesh, plan)
        block.attn.heads //= ranks
        block.mlp.mlp = None  # its layers one after the other, each of which is parallelised
    embedding = {"input_layouts": ALL, "use_local_output": False}
    ends = {
        "wte": RowwiseParallel(output_layouts=SEQUENCE, **embedding),
        "wpe": ColwiseParallel(output_layouts=Shard(0), **embedding),
        "ln_f": Whole(),
    }
    parallelize_module(model.transformer, mesh, ends)
    whole = PrepareModuleOutput(
        output_layouts=SEQUENCE, desired_output_layouts=ALL, use_local_output=False
    )
    parallelize_module(model.transformer, mesh, whole)
