"""Two processes that train parameters of which each has a shard, and compare with whole ones.

python -m tests.families.adamw.sharded_steps DEVICE RANK RANKS FILE
"""

import sys

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from tests.tools import ranks
from thunderkittens.optim import AdamW

SHAPES = ((5, 4), (7,), (6, 3), (4,))
PLACEMENTS = (
    Shard(0),
    Shard(0),
    Replicate(),
    None,
)  # 5 and 7 rows are not halves; None: no DTensor
OPTIONS = {"lr": 0.1, "max_norm": 0.5, "master_weights": True, "skip_nonfinite": True}


def steps(params: list[nn.Parameter], grads: list[list[Tensor]], place) -> AdamW:
    """Some steps with these gradients, each placed as its parameter."""
    optimizer = AdamW(params, **OPTIONS)
    for all_of_step in grads:
        for i, (p, grad) in enumerate(zip(params, all_of_step, strict=True)):
            p.grad = place(i, grad)
        optimizer.step()
    return optimizer


def check(device: str) -> None:
    """Parameters, norms and states are those of one process."""
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(shape, generator=generator).to(device) for shape in SHAPES]
    grads = [
        [torch.randn(shape, generator=generator).to(device) for shape in SHAPES] for _ in range(3)
    ]

    def place(i: int, t: Tensor) -> Tensor:
        placement = PLACEMENTS[i]
        return t if placement is None else distribute_tensor(t, mesh, [placement])

    whole = [nn.Parameter(v.clone()) for v in values]
    parts = [nn.Parameter(place(i, v.clone())) for i, v in enumerate(values)]
    one, two = steps(whole, grads, lambda i, t: t), steps(parts, grads, place)
    torch.testing.assert_close(two.grad_norm, one.grad_norm, rtol=1e-6, atol=0)
    for i, (p, q) in enumerate(zip(whole, parts, strict=True)):
        for want, got in ((p, q), (one.state[p]["exp_avg"], two.state[q]["exp_avg"])):
            full = got if PLACEMENTS[i] is None else got.full_tensor()
            torch.testing.assert_close(full.detach(), want.detach(), rtol=1e-5, atol=1e-7)
    parts[0].grad = distribute_tensor(grads[0][0], mesh, [Replicate()])
    with pytest.raises(ValueError, match="AdamW: a gradient must be placed as its parameter"):
        two.step()


def main(device: str, rank: str, size: str, file: str) -> None:
    """Runs the check as one of the processes."""
    ranks.begin(device, rank, size, file)
    check(device)
    ranks.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
