"""Two processes that compute with DTensors and compare with one: started by tests of DTensor.

python -m tests.tools.sharded DEVICE
"""

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)

import thunderkittens
from tests.tools import ranks
from tests.tools.sharded_recurrences import (
    check_based_attention,
    check_hedgehog_attention,
    check_linear_attention,
    check_mamba2,
    check_steps,
)

# Dtype, and how far sums in another order may be apart, beside the largest element.
BOUNDS = {torch.float32: 2e-5, torch.bfloat16: 2**-7}


class Check:
    """One call, on whole tensors and on shards of them."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.mesh = init_device_mesh(device, (dist.get_world_size(),))

    def __call__(
        self,
        name: str,
        call: Callable[..., Tensor | tuple[Tensor, ...]],
        inputs: list[Tensor],
        placements: list[Placement],
        results: list[Placement],
        gradients: list[Placement] | None = None,
    ) -> None:
        """Inputs that are floating point have a gradient, if any placements of them are given."""
        trained = [gradients is not None and x.is_floating_point() for x in inputs]
        inputs = [x.to(self.device) for x in inputs]
        whole = [x.clone().requires_grad_(t) for x, t in zip(inputs, trained, strict=True)]
        parts = [
            distribute_tensor(x, self.mesh, [p]).requires_grad_(t)
            for x, p, t in zip(inputs, placements, trained, strict=True)
        ]
        want, got = _listed(call(*whole)), _listed(call(*parts))
        for i, (g, w, p) in enumerate(zip(got, want, results, strict=True)):
            self._same(f"{name}: result {i}", g, w, p)
        if gradients is None:
            return
        given = [torch.randn_like(w) for w in want]
        torch.autograd.backward(want, given)
        torch.autograd.backward(
            got, [distribute_tensor(g, self.mesh, [Replicate()]) for g in given]
        )
        wanted = [x.grad for x, t in zip(whole, trained, strict=True) if t]
        found = [x.grad for x, t in zip(parts, trained, strict=True) if t]
        for i, (g, w, p) in enumerate(zip(found, wanted, gradients, strict=True)):
            self._same(f"{name}: gradient {i}", g, w, p)

    def _same(self, name: str, got: Tensor, want: Tensor, placement: Placement) -> None:
        assert isinstance(got, DTensor), f"{name} is a {type(got)}"
        assert got.placements == (placement,), f"{name}: {got.placements}, not {placement}"
        full = got.full_tensor()
        assert (full.shape, full.dtype) == (want.shape, want.dtype), name
        bound = BOUNDS[want.dtype] * max(1, float(want.detach().abs().nan_to_num(0).max()))
        torch.testing.assert_close(
            full, want, rtol=0, atol=bound, equal_nan=True, msg=lambda m: f"{name}: {m}"
        )


def _listed(results: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


def check_rows(check: Check, dtype: torch.dtype) -> None:
    """Norms and activations on any leading dimension, weights replicated."""
    x, residual = (torch.randn(4, 6, 32).to(dtype) for _ in "xr")
    weight, bias = (torch.randn(32).to(dtype) for _ in "wb")
    for dim in (0, 1):
        rows, all_, sum_ = Shard(dim), Replicate(), Partial()
        norm = ([x, weight, bias], [rows, all_, all_], [rows], [rows, sum_, sum_])
        check("layer_norm", thunderkittens.layer_norm, *norm)
        check(
            "rms_norm",
            thunderkittens.rms_norm,
            *(part[:2] for part in norm[:2]),
            [rows],
            norm[3][:2],
        )
        check(
            "add_rms_norm",
            thunderkittens.add_rms_norm,
            [x, residual, weight],
            [rows, rows, all_],
            [rows, rows],
            [rows, rows, sum_],
        )
        check(
            "add_layer_norm",
            thunderkittens.add_layer_norm,
            [x, residual, weight, bias],
            [rows, rows, all_, all_],
            [rows, rows],
            [rows, rows, sum_, sum_],
        )
    for place in (Shard(0), Shard(1), Shard(2)):
        for op in (thunderkittens.swiglu, thunderkittens.geglu):
            check(op.__name__, op, [x, residual], [place] * 2, [place], [place] * 2)
        check("gelu", thunderkittens.gelu, [x], [place], [place], [place])


def check_attention(check: Check, dtype: torch.dtype) -> None:
    """On the batch and on heads, of keys too."""
    q = torch.randn(2, 5, 4, 16).to(dtype)
    k, v = (torch.randn(2, 7, 2, 16).to(dtype) for _ in "kv")
    for place in (Shard(0), Shard(2)):

        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return thunderkittens.attention(q, k, v, causal=True)

        check("attention", call, [q, k, v], [place] * 3, [place], [place] * 3)
    sinks, heads = torch.randn(4).to(dtype), Shard(2)

    def with_sinks(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor) -> tuple[Tensor, Tensor]:
        return thunderkittens.attention(q, k, v, sinks=sinks, window=(3, 0), return_lse=True)

    places = [heads] * 3 + [Shard(0)]
    check("sinks", with_sinks, [q, k, v, sinks], places, [heads, Shard(1)])
    qkv = torch.randn(2, 5, 3, 4, 16).to(dtype)
    for place, its in ((Shard(0), Shard(0)), (Shard(3), Shard(2))):
        check("qkv", thunderkittens.attention_qkvpacked, [qkv], [place], [its], [place])
    used = torch.tensor([7, 4])

    def padded(q: Tensor, k: Tensor, v: Tensor, used: Tensor) -> Tensor:
        return thunderkittens.attention(q, k, v, causal=True, seqused_k=used)

    for place, its in ((Shard(0), Shard(0)), (heads, Replicate())):
        check("seqused_k", padded, [q, k, v, used], [place] * 3 + [its], [place], [place] * 3)
    # One head of keys is replicated, and its gradient a sum over all that read it.
    one, all_, sum_ = [q, k[:, :, :1], v[:, :, :1]], Replicate(), Partial()
    places, gradients = [heads, all_, all_], [heads, sum_, sum_]
    check("one head", thunderkittens.attention, one, places, [heads], gradients)
    # Three cannot be sharded evenly: all is replicated first.
    three = [
        torch.randn(2, 5, 6, 16).to(dtype),
        *(torch.randn(2, 7, 3, 16).to(dtype) for _ in "kv"),
    ]
    check("three heads", thunderkittens.attention, three, [heads, all_, all_], [all_])


def check_rotary(check: Check, dtype: torch.dtype) -> None:
    """On the batch, on heads, and on the sequence with the tables' rows."""
    q, k = torch.randn(2, 6, 4, 8).to(dtype), torch.randn(2, 6, 2, 8).to(dtype)
    angles = torch.randn(6, 4)

    def call(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return thunderkittens.rotary(q, k, cos.detach(), sin.detach())

    tables = [angles.cos(), angles.sin()]
    for place in (Shard(0), Shard(1), Shard(2)):
        for table in (Replicate(), Shard(0)) if place == Shard(1) else (Replicate(),):
            check("rotary", call, [q, k, *tables], [place] * 2 + [table] * 2, [place] * 2)
    all_ = Replicate()  # one head of keys is a result, not only read by the others
    places = [Shard(2), all_, all_, all_]
    check("rotary, one head", call, [q, k[:, :, :1], *tables], places, [all_] * 2)


def check_cross_entropy(check: Check, dtype: torch.dtype) -> None:
    """On rows, and on the vocabulary: 13 columns are 7 and 6."""
    logits = (4 * torch.randn(3, 4, 13)).to(dtype)
    logits[0, 1, :7] = -torch.inf  # nothing in one shard
    targets = torch.randint(7, 13, (3, 4))
    targets[1, 2], targets[2, 0] = -100, 2
    for reduction in ("none", "sum", "mean"):
        for options in ({}, {"z_loss": 0.01}):

            def call(x: Tensor, t: Tensor, reduction=reduction, options=options) -> Tensor:
                return thunderkittens.cross_entropy(x, t, reduction=reduction, **options)

            for place, of_targets in ((Shard(2), Replicate()), (Shard(0), Shard(0))):
                rows = place if place == Shard(0) else Replicate()
                loss = rows if reduction == "none" else rows if rows == Replicate() else Partial()
                name = f"cross_entropy {reduction} {options} {place}"
                check(name, call, [logits, targets], [place, of_targets], [loss], [place])
                check(name, call, [logits, targets], [place, of_targets], [loss])

    def smoothed(x: Tensor, t: Tensor) -> Tensor:
        return thunderkittens.cross_entropy(x, t, label_smoothing=0.1)

    finite = logits.nan_to_num(neginf=-9)
    places = [Shard(2), Replicate()]
    check("smoothed", smoothed, [finite, targets], places, [Replicate()], [Shard(2)])
    few = [finite[..., :1].contiguous(), targets.clamp(max=0)]  # no column for one process
    check("one column", smoothed, few, places, [Replicate()], [Replicate()])
    wrong = [
        distribute_tensor(x.to(check.device), check.mesh, [p])
        for x, p in zip((finite, targets + 5), places, strict=True)
    ]
    if check.device == "cpu":
        try:
            smoothed(*wrong)
        except IndexError as error:
            assert "targets must be >= 0 and < 13 (logits.size(-1))" in str(error)
        else:
            raise AssertionError("a target outside of the vocabulary raises nothing")


def check_linear_cross_entropy(check: Check, dtype: torch.dtype) -> None:
    """On rows: the gradients of weight and bias are Partial."""
    x, weight, bias = (torch.randn(s).to(dtype) for s in ((6, 8), (13, 8), (13,)))
    targets, rows, all_, sum_ = torch.randint(13, (6,)), Shard(0), Replicate(), Partial()
    for reduction, loss in (("none", rows), ("sum", sum_)):

        def call(x: Tensor, w: Tensor, b: Tensor, t: Tensor, reduction=reduction) -> Tensor:
            return thunderkittens.linear_cross_entropy(x, w, t, bias=b, reduction=reduction)

        given = ([x, weight, bias, targets], [rows, all_, all_, rows])
        check(f"linear {reduction}", call, *given, [loss], [rows, sum_, sum_])


def main(device: str) -> None:
    """Runs all checks as one of the processes."""
    ranks.begin(device)
    check = Check(device)
    for dtype in BOUNDS:
        torch.manual_seed(0)
        check_attention(check, dtype)
        check_linear_attention(check, dtype)
        check_mamba2(check, dtype)
        check_based_attention(check, dtype)
        check_hedgehog_attention(check, dtype)
        check_cross_entropy(check, dtype)
        if device == "cuda" or dtype == torch.float32:  # elsewhere dtypes do not matter
            check_rows(check, dtype)
            check_steps(check, dtype)
            check_rotary(check, dtype)
            check_linear_cross_entropy(check, dtype)
    ranks.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
