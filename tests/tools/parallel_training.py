"""Ranks that train a small Llama with our ops in every way of torch.distributed, against one alone.

python -m tests.tools.parallel_training DEVICE
"""

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import thunderkittens
from tests.tools import ranks
from thunderkittens.distributed import ring_attention, shard_sequence
from thunderkittens.nn import GatedMLP, LinearCrossEntropyLoss, RMSNorm, Rotary
from thunderkittens.optim import AdamW

WIDTH, HEADS, KEY_HEADS, HIDDEN, VOCABULARY, LENGTH, BATCH, STEPS = 64, 4, 2, 96, 50, 24, 4, 4
# How far gradients may be apart that are sums in another order, beside the largest element: some
# 100 · 64 additions in float32 of terms as large, and the weights before them.
BOUND = 1e-4
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As one process does."""
    return thunderkittens.attention(q, k, v, causal=True)


class Attention(nn.Module):
    """Causal, with grouped heads: as many as its projections give."""

    def __init__(self) -> None:
        super().__init__()
        width = WIDTH // HEADS
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k = nn.Linear(WIDTH, KEY_HEADS * width, bias=False)
        self.v = nn.Linear(WIDTH, KEY_HEADS * width, bias=False)
        self.proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.rotary = Rotary(width, LENGTH)
        self.attend: Attend = attend

    def forward(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """[B, S, WIDTH] to the same."""
        q, k, v = (f(x).unflatten(-1, (-1, WIDTH // HEADS)) for f in (self.q, self.k, self.v))
        cos, sin = self.rotary.cos, self.rotary.sin
        if positions is not None:
            cos, sin = cos[positions], sin[positions]
        q, k = thunderkittens.rotary(q, k, cos, sin)
        return self.proj(self.attend(q, k, v).flatten(-2))


class Block(nn.Module):
    """Attention and MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(WIDTH), RMSNorm(WIDTH)
        self.attention, self.gated = Attention(), GatedMLP(WIDTH, HIDDEN)

    def forward(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """[B, S, WIDTH] to the same."""
        x = x + self.attention(self.norm1(x), positions)
        return x + self.gated(self.norm2(x))


class Model(nn.Module):
    """Tokens and targets, [B, S] each, to a loss: by the linear loss, or from logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.loss = LinearCrossEntropyLoss()
        self.makes_logits = False

    def forward(self, tokens: Tensor, targets: Tensor, positions: Tensor | None = None) -> Tensor:
        """The mean loss."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, positions)
        x = self.norm(x)
        if self.makes_logits:
            return thunderkittens.cross_entropy(self.head(x), targets)
        return self.loss(x, self.head.weight, targets)


Trained = tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]  # with the loss of a whole batch


def alone(device: str) -> Trained:
    """One process."""
    torch.manual_seed(0)
    model = Model().to(device)
    return model, model


def rows_of(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """Each rank takes its rows of a batch."""
    rank, size = dist.get_rank(), dist.get_world_size()
    return lambda *batch: model(*(t.chunk(size)[rank] for t in batch))


def by_ddp(device: str) -> Trained:
    """Data parallel: a model each, gradients averaged."""
    model = nn.parallel.DistributedDataParallel(alone(device)[0])
    return model, rows_of(model)


def by_fsdp(device: str, **options: MixedPrecisionPolicy) -> Trained:
    """Data parallel, with shards of all parameters."""
    model = alone(device)[0]
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)
    return model, rows_of(model)


def by_tensors(device: str, mesh: DeviceMesh | None = None) -> Trained:
    """Tensor parallel: heads, columns and the vocabulary sharded; between them, the sequence."""
    model = alone(device)[0]
    mesh = mesh or init_device_mesh(device, (dist.get_world_size(),))
    whole = PrepareModuleInput(
        input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
    )
    plan = {
        "norm1": SequenceParallel(),
        "attention": whole,
        **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
        "attention.proj": RowwiseParallel(output_layouts=Shard(1)),
        "norm2": SequenceParallel(),
        "gated": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        "gated.gate_proj": ColwiseParallel(),
        "gated.up_proj": ColwiseParallel(),
        "gated.down_proj": RowwiseParallel(output_layouts=Shard(1)),
    }
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    ends = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
        ),
    }
    parallelize_module(model, mesh, ends)
    model.makes_logits = True
    return model, model


def by_fsdp_and_tensors(device: str) -> Trained:
    """Pairs of ranks share the tensors, and both pairs what each rank has of them."""
    mesh = init_device_mesh(device, (2, 2), mesh_dim_names=("data", "tensor"))
    model, _ = by_tensors(device, mesh["tensor"])
    for block in model.blocks:
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    half = mesh["data"].get_local_rank()
    return model, lambda *batch: model(*(t.chunk(2)[half] for t in batch))


def by_context(device: str) -> Trained:
    """Context parallel: each rank has a zigzag of every sequence; gradients are averaged."""
    model = alone(device)[0]
    for block in model.blocks:
        block.attention.attend = lambda q, k, v: ring_attention(q, k, v, causal=True)
    model = nn.parallel.DistributedDataParallel(model)
    positions = shard_sequence(torch.arange(LENGTH, device=device), 0)
    return model, lambda *batch: model(*map(shard_sequence, batch), positions)


def whole(t: Tensor) -> Tensor:
    """A DTensor's all."""
    return t.full_tensor() if isinstance(t, DTensor) else t


def train(
    trained: Trained, device: str, averages: bool
) -> tuple[list[float], list[dict[str, Tensor]], list[float]]:
    """Losses, gradients and their norms of some steps; the loss is a mean over ranks or of all."""
    model, loss_of = trained
    generator = torch.Generator().manual_seed(1)
    optimizer = AdamW(model.parameters(), lr=1e-3, max_norm=0.5)
    losses, gradients, norms = [], [], []
    for _ in range(STEPS):
        text = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=generator).to(device)
        loss = loss_of(text[:, :-1].contiguous(), text[:, 1:].contiguous())
        loss.backward()
        total = whole(loss.detach()).clone()
        if averages:
            dist.all_reduce(total)
            total /= dist.get_world_size()
        losses.append(float(total))
        named = model.named_parameters()
        gradients.append({n.removeprefix("module."): whole(p.grad).clone() for n, p in named})
        optimizer.step()
        norms.append(float(optimizer.grad_norm))
        optimizer.zero_grad()
    return losses, gradients, norms


def compare(name: str, got: tuple, want: tuple) -> None:
    """Losses, each gradient and each norm, at each step."""
    losses, gradients, norms = got
    for step, wanted in enumerate(want[1]):
        for one, other in ((losses[step], want[0][step]), (norms[step], want[2][step])):
            assert abs(one - other) <= BOUND * abs(other), (
                f"{name}, step {step}: {one}, not {other}"
            )
        assert gradients[step].keys() == wanted.keys()
        for parameter, goal in wanted.items():
            torch.testing.assert_close(
                gradients[step][parameter],
                goal,
                rtol=0,
                atol=BOUND * float(goal.abs().max()),
                msg=lambda m, p=parameter, s=step: f"{name}, step {s}, {p}: {m}",
            )


def check_bfloat16(device: str, want: list[float]) -> None:
    """FSDP2's mixed precision: on a GPU by the kernels; losses as near as 8 bits let them be."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    losses, _, _ = train(by_fsdp(device, mp_policy=policy), device, averages=True)
    for one, other in zip(losses, want, strict=True):
        assert abs(one - other) <= 2**-6 * other


def main(device: str) -> None:
    """Runs all checks as one of the processes."""
    ranks.begin(device)
    want = train(alone(device), device, averages=False)
    assert want[2][0] > 0.5, "clipping is to be at work"
    if dist.get_world_size() == 4:
        compare("2-D", train(by_fsdp_and_tensors(device), device, averages=True), want)
        ranks.end()
    for way, averages in ((by_ddp, True), (by_fsdp, True), (by_tensors, False), (by_context, True)):
        compare(way.__name__, train(way(device), device, averages), want)
    check_bfloat16(device, want[0])
    ranks.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
