"""How several ranks share a run: rows of the batch, parameters, heads or the sequence.

    ddp      each rank has the model, and rows of the batch; gradients are averaged
    fsdp     the same with shards of parameters, gradients and moments (FSDP2)
    tensor   heads, the MLP's columns and the vocabulary are sharded; between them, the sequence
    context  each rank has the model, and a zigzag of each sequence: ring attention

A saved state is that of one process, so a run may go on in another way, or with other ranks.
"""

import argparse
import contextlib

import ranks
import torch
import torch.distributed as dist
from models import data
from models.command_line import device
from models.gpt2 import GPT2, TRAINING_OPS
from torch import Tensor, nn

from thunderkittens.distributed import ring_attention, shard_sequence

WAYS = ("ddp", "fsdp", "tensor", "context")


class Team:
    """One process alone; what the ways have in common."""

    rank, ranks = 0, 1

    def prepare(self, model: GPT2) -> nn.Module:
        """What is called to train a model, whose parameters may become shards."""
        return model

    def parts(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """This rank's tokens and targets of [B, length + 1], and positions if they are not all."""
        return batch[:, :-1], batch[:, 1:], None

    def accumulates(self, module: nn.Module, last: bool) -> contextlib.AbstractContextManager:
        """Around all of a step's micro-batches but the last, whose gradients are exchanged."""
        return contextlib.nullcontext()

    def begin_step(self, seed: int, step: int) -> None:
        """Sets the random numbers of a step."""

    def whole(self, name: str, t: Tensor) -> Tensor:
        """All of a parameter of that name, or of its moments; all ranks call it."""
        return t

    def part(self, name: str, t: Tensor, parameter: Tensor) -> Tensor:
        """The inverse: as the parameter is placed."""
        return t

    def plain(self, model: GPT2) -> GPT2:
        """The model of one process, with all weights; all ranks call it."""
        return model

    def total(self, t: Tensor) -> Tensor:
        """The sum over ranks."""
        return t

    def agree(self, *flags: bool) -> list[bool]:
        """Whether each of the flags is up on any rank."""
        return list(flags)


class _Ranks(Team):
    """Several processes."""

    def __init__(self, options: argparse.Namespace):
        backend = "gloo" if options.device.type == "cpu" else "cpu:gloo,cuda:nccl"
        if not dist.is_initialized():
            dist.init_process_group(backend)
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.device = options.device

    def begin_step(self, seed: int, step: int) -> None:
        torch.manual_seed((seed * 1_000_003 + step) * self.ranks + self.rank)

    def plain(self, model: GPT2) -> GPT2:
        with torch.device("meta"):
            plain = GPT2(model.config, TRAINING_OPS)
        state = {name: self.whole(name, t.detach()) for name, t in model.state_dict().items()}
        plain.load_state_dict(state, assign=True)
        return plain

    def total(self, t: Tensor) -> Tensor:
        dist.all_reduce(t)
        return t

    def agree(self, *flags: bool) -> list[bool]:
        found = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return [bool(flag) for flag in found]


class _Rows(_Ranks):
    """Each rank has rows of the batch."""

    def parts(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        return super().parts(batch.chunk(self.ranks)[self.rank])


class _Ddp(_Rows):
    def prepare(self, model: GPT2) -> nn.Module:
        return nn.parallel.DistributedDataParallel(model)

    def accumulates(self, module: nn.Module, last: bool) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext() if last else module.no_sync()

    def plain(self, model: GPT2) -> GPT2:
        return model


class _Context(_Ddp):
    def prepare(self, model: GPT2) -> nn.Module:
        for block in model.transformer.h:
            block.attn.attention, block.attn.attention_qkvpacked = ring_attention, None
        return super().prepare(model)

    def parts(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        positions = torch.arange(batch.size(1) - 1, device=batch.device)
        tokens, targets = shard_sequence(batch[:, :-1]), shard_sequence(batch[:, 1:])
        return tokens, targets, shard_sequence(positions, 0)

    def plain(self, model: GPT2) -> GPT2:
        return _Ranks.plain(self, model)  # without the ring


class _DTensors:
    """Of parameters that are DTensors."""

    def whole(self, name: str, t: Tensor) -> Tensor:
        return t.full_tensor() if hasattr(t, "full_tensor") else t

    def part(self, name: str, t: Tensor, parameter: Tensor) -> Tensor:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(t, parameter.device_mesh, parameter.placements)


class _Fsdp(_DTensors, _Rows):
    def prepare(self, model: GPT2) -> nn.Module:
        from torch.distributed.fsdp import fully_shard

        for block in model.transformer.h:
            fully_shard(block)
        return fully_shard(model)

    def accumulates(self, module: nn.Module, last: bool) -> contextlib.AbstractContextManager:
        module.set_requires_gradient_sync(last)
        return contextlib.nullcontext()


class _Tensor(_DTensors, _Ranks):
    """q, k and v are one matrix, whose columns are put in the order of ranks before it is cut."""

    def prepare(self, model: GPT2) -> nn.Module:
        import tensor_parallel

        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if ".c_attn." in name:
                    parameter.copy_(parameter[..., self._order(parameter.size(-1))])
        tensor_parallel.shard(model, self.device.type, self.ranks)
        return model

    def whole(self, name: str, t: Tensor) -> Tensor:
        t = super().whole(name, t)
        return t[..., self._order(t.size(-1)).argsort()] if self._is_ordered(name, t) else t

    def part(self, name: str, t: Tensor, parameter: Tensor) -> Tensor:
        t = t[..., self._order(t.size(-1))] if self._is_ordered(name, t) else t
        return super().part(name, t, parameter)

    @staticmethod
    def _is_ordered(name: str, t: Tensor) -> bool:
        return ".c_attn." in name and t.dim() > 0

    def _order(self, columns: int) -> Tensor:
        """The columns of q, k and v for rank 0, then those for rank 1, and so on."""
        return torch.arange(columns).view(3, self.ranks, -1).transpose(0, 1).flatten()


def team_of(options: argparse.Namespace) -> Team:
    """Those who train together, all of them here now."""
    ways = {"ddp": _Ddp, "fsdp": _Fsdp, "tensor": _Tensor, "context": _Context}
    return ways[options.parallel](options) if options.parallel else Team()


def device_of(options: argparse.Namespace) -> torch.device:
    """That of --device; a rank's is as many behind it as its number says.

    Raises:
        argparse.ArgumentTypeError: There is none.
    """
    name = options.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not (options.parallel and name.startswith("cuda")):
        return device(name)
    first, there = int(name.partition(":")[2] or 0), torch.cuda.device_count()
    if first + (count := ranks.here(options.ranks)) > there:
        raise argparse.ArgumentTypeError(
            f"{name}: {count} ranks need a GPU each, got {there} in all"
        )
    if not ranks.is_one():
        return torch.device("cuda", first)  # not used: who starts the ranks leaves GPUs alone
    torch.cuda.set_device(first + ranks.local())
    return device(f"cuda:{first + ranks.local()}")


def why_not(options: argparse.Namespace) -> str:
    """What is wrong with the sizes for that way, or ""."""
    count = options.ranks
    if options.parallel in ("ddp", "fsdp") and options.micro_batch % count:
        return f"--micro-batch {options.micro_batch} is not divisible by {count} ranks"
    if options.parallel == "context" and options.length % (2 * count):
        return f"--length {options.length} is not divisible into 2 chunks for each of {count} ranks"
    if options.parallel == "tensor":
        if options.heads % count or options.length % count:
            return f"--heads and --length must be divisible by {count} ranks"
        if options.dropout:
            return "--parallel tensor has no dropout: say --dropout 0"
    if options.parallel and options.compile:
        return "--compile is for one process, without --parallel"
    return ""


def tokenizer_of_all(team: Team, train: list[str], vocabulary: int) -> data.Tokenizer:
    """The one that rank 0 has trained."""
    made = [data.train_tokenizer(train, vocabulary).to_str() if team.rank == 0 else ""]
    if team.ranks > 1:
        dist.broadcast_object_list(made, src=0)
    return data.Tokenizer.from_str(made[0])
