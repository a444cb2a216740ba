"""Two processes that compute with DTensors and compare with one: started by tests of DTensor.

python -m tests.tools.sharded CPU|CUDA RANK FILE
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

WORLD = 2
# Dtype, and how far sums in another order may be apart, beside the largest element.
BOUNDS = {torch.float32: 2e-5, torch.bfloat16: 2**-7}


class Check:
    """One call, on whole tensors and on shards of them."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.mesh = init_device_mesh(device, (WORLD,))

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


def check_linear_attention(check: Check, dtype: torch.dtype) -> None:
    """On the batch and on heads, of keys too, with decays and a state."""
    q, k = (torch.randn(2, 5, 2, 8).to(dtype) for _ in "qk")
    v, decay, state = torch.randn(2, 5, 4, 6), -torch.rand(2, 5, 4), torch.randn(2, 4, 8, 6)

    def call(q: Tensor, k: Tensor, v: Tensor, g: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        return thunderkittens.linear_attention(
            q, k, v, log_decay=g, initial_state=s, output_final_state=True
        )

    inputs = [q, k, v.to(dtype), decay, state]
    for place, of_state in ((Shard(0), Shard(0)), (Shard(2), Shard(1))):
        places = [place] * 4 + [of_state]
        check("linear_attention", call, inputs, places, [place, of_state], places)


def check_mamba2(check: Check, dtype: torch.dtype) -> None:
    """On the batch and on heads, with their groups of B and C or with one group for all."""
    x, dt = torch.randn(2, 5, 4, 8).to(dtype), torch.randn(2, 5, 4).to(dtype)
    heads, states = (-torch.rand(4), torch.randn(4), torch.randn(4)), torch.randn(2, 4, 8, 16)

    def call(x, dt, A, B, C, D, bias, state):
        return thunderkittens.mamba2(
            x,
            dt,
            A,
            B,
            C,
            D=D,
            dt_bias=bias,
            dt_softplus=True,
            initial_state=state,
            return_final_state=True,
        )

    first, second, third, all_, sum_ = Shard(0), Shard(1), Shard(2), Replicate(), Partial()
    for groups in (1, 2, 4):
        B, C = (torch.randn(2, 5, groups, 16).to(dtype) for _ in "BC")
        inputs = [x, dt, heads[0], B, C, *heads[1:], states]
        name = f"mamba2, {groups} groups"
        places = [first, first, all_, first, first, all_, all_, first]
        of_batch = [sum_ if p == all_ else p for p in places]
        check(name, call, inputs, places, [first, first], of_batch)
        group, d_group = (third, third) if groups > 1 else (all_, sum_)
        places = [third, third, first, group, group, first, first, second]
        gradients = [*places[:3], d_group, d_group, *places[5:]]
        check(name, call, inputs, places, [third, second], gradients)
    # Packed sequences are replicated first.
    ends = torch.tensor([0, 2, 5])

    def packed(x, dt, A, B, C, ends):
        return thunderkittens.mamba2(x, dt, A, B, C, dt_softplus=True, cu_seqlens=ends)

    inputs = [x[0], dt[0], heads[0], B[0], C[0], ends]
    check("mamba2, packed", packed, inputs, [second, second, first, *[all_] * 3], [all_])


def check_based_attention(check: Check, dtype: torch.dtype) -> None:
    """On the batch and on heads, with states and without."""
    q, k = (0.5 * torch.randn(2, 5, 4, 8).to(dtype) for _ in "qk")
    v = torch.randn(2, 5, 4, 16).to(dtype)
    for normalize in (False, True):

        def call(q, k, v, normalize=normalize):
            return thunderkittens.based_attention(q, k, v, normalize=normalize)

        for place in (Shard(0), Shard(2)):
            check("based_attention", call, [q, k, v], [place] * 3, [place], [place] * 3)

    def with_states(q, k, v):
        o, states = thunderkittens.based_attention(
            q, k, v, normalize=False, output_final_state=True
        )
        return (o, *(states if isinstance(states, tuple) else (states,)))

    for place, of_state in ((Shard(0), Shard(0)), (Shard(2), Shard(1))):
        results = [place, *[of_state] * (len(with_states(q, k, v)) - 1)]
        check("based_attention, states", with_states, [q, k, v], [place] * 3, results, [place] * 3)


def check_hedgehog_attention(check: Check, dtype: torch.dtype) -> None:
    """On the batch, whose maps are replicated, and on heads with their maps."""
    q, k, v = (torch.randn(2, 70, 4, 16).to(dtype) for _ in "qkv")
    maps = [0.3 * torch.randn(4, 16, 8).to(dtype) for _ in "qk"]
    mixes = [torch.rand(4), torch.rand(4)]

    def call(q, k, v, q_map, k_map, alpha, beta):
        return thunderkittens.hedgehog_attention(q, k, v, q_map, k_map, alpha=alpha, beta=beta)

    inputs = [q, k, v, *maps, *mixes]
    for place, of_heads, gradient in (
        (Shard(0), Replicate(), Partial()),
        (Shard(2), Shard(0), Shard(0)),
    ):
        places = [place] * 3 + [of_heads] * 4
        gradients = [place] * 3 + [gradient] * 4
        check("hedgehog_attention", call, inputs, places, [place], gradients)


def check_steps(check: Check, dtype: torch.dtype) -> None:
    """States are updated where they are: on heads, on the batch, by indices on heads alone."""
    del dtype
    heads, batch, all_ = Shard(1), Shard(0), Replicate()
    slots = torch.tensor([2, 0])
    q, k, v = torch.randn(2, 2, 8), torch.randn(2, 2, 8), torch.randn(2, 4, 6)
    x, dt, A = torch.randn(2, 4, 8), torch.randn(2, 4), -torch.rand(4)

    def of_linear(q, k, v, state, *slots):
        options = {"state_indices": slots[0]} if slots else {}
        o = thunderkittens.linear_attention_step(q, k, v, state, **options)
        return o, state

    def of_mamba2(x, dt, A, B, state, *slots):
        options = {"state_indices": slots[0]} if slots else {}
        y = thunderkittens.mamba2_step(x, dt, A, B, B, state, dt_softplus=True, **options)
        return y, state

    for states, more in ((2, []), (3, [slots])):
        state, indices = torch.randn(states, 4, 8, 6), [all_] * len(more)
        for place in (heads, batch)[: 1 if more else 2]:
            places = [*[place] * 4, *indices]
            check("linear step", of_linear, [q, k, v, state, *more], places, [place] * 2)
            for groups in (1, 2):
                B, of_state = torch.randn(2, groups, 16), torch.randn(states, 4, 8, 16)
                of_A = batch if place == heads else all_
                of_B = all_ if groups == 1 and place == heads else place
                places = [place, place, of_A, of_B, place, *indices]
                inputs = [x, dt, A, B, of_state, *more]
                check("mamba2 step", of_mamba2, inputs, places, [place] * 2)
    # Slots that are sharded cannot be chosen by index; a copy of them would be lost.
    parts = [
        distribute_tensor(t.to(check.device), check.mesh, [p])
        for t, p in zip(
            (q, k, v, torch.randn(4, 4, 8, 6), slots), [all_] * 3 + [batch, all_], strict=True
        )
    ]
    try:
        of_linear(*parts)
    except (NotImplementedError, RuntimeError) as error:
        assert "what is updated in place may be replicated, or sharded on heads" in str(error), (
            error
        )
    else:
        raise AssertionError("a state that would have to move is refused")


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


def main(device: str, rank: str, file: str) -> None:
    """Runs all checks as one of the processes, which meet at a file."""
    backend = "gloo" if device == "cpu" else "nccl"
    if device == "cuda":
        torch.cuda.set_device(int(rank))
    torch.set_num_threads(1)
    dist.init_process_group(backend, f"file://{file}", rank=int(rank), world_size=WORLD)
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
    dist.destroy_process_group()
    print("all shards agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
