"""Two processes that train parameters of which each has a shard, and compare with whole ones.

python -m tests.families.adamw.sharded_steps DEVICE
"""

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import thunderkittens
from tests.tools import ranks
from thunderkittens import _C
from thunderkittens._loader import SIMULATOR
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
    check_placed_otherwise(mesh, whole, parts, grads[0], one, two)
    check_launches(mesh, values, grads)


def check_placed_otherwise(mesh, whole, parts, grads, one: AdamW, two: AdamW) -> None:
    """Gradients that are whole, or sums still to be made, as of tensor parallelism."""
    here = dist.get_rank()
    for p, q, grad in zip(whole, parts, grads, strict=True):
        p.grad = q.grad = grad
        if isinstance(q, DTensor):
            shares = [grad * 0.25, grad * 0.75]
            q.grad = DTensor.from_local(shares[here], mesh, [Partial()])
    parts[0].grad = distribute_tensor(grads[0], mesh, [Replicate()])
    one.step()
    two.step()
    torch.testing.assert_close(two.grad_norm, one.grad_norm, rtol=1e-6, atol=0)
    assert parts[1].grad.placements == (Partial(),), "it stays what it is"
    for p, q in zip(whole, parts, strict=True):
        full = q.full_tensor() if isinstance(q, DTensor) else q
        torch.testing.assert_close(full.detach(), p.detach(), rtol=1e-5, atol=1e-7)


def check_launches(mesh, values, grads) -> None:
    """All shards of a rank are one launch, and one for the norm."""
    if not SIMULATOR.exists() and mesh.device_type == "cpu":
        return
    params = [nn.Parameter(distribute_tensor(v.clone(), mesh, [Shard(0)])) for v in values]
    for p, grad in zip(params, grads[0], strict=True):
        p.grad = distribute_tensor(grad, mesh, [Shard(0)])
    optimizer = AdamW(params, max_norm=0.5)
    optimizer.step()
    with thunderkittens.backend("simulator" if mesh.device_type == "cpu" else "auto"):
        before = _C.launch_counts()
        optimizer.step()
    launches = {op: n - before.get(op, 0) for op, n in _C.launch_counts().items()}
    assert {op: n for op, n in launches.items() if n} == {"adamw_norm": 1, "adamw_update": 1}


def main(device: str) -> None:
    """Runs the check as one of the processes."""
    ranks.begin(device)
    check(device)
    ranks.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
