"""What tests/tools/sharded.py checks of linear attention, its relatives and their steps."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

import thunderkittens

if TYPE_CHECKING:
    from tests.tools.sharded import Check


def check_linear_attention(check: "Check", dtype: torch.dtype) -> None:
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


def check_mamba2(check: "Check", dtype: torch.dtype) -> None:
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


def check_based_attention(check: "Check", dtype: torch.dtype) -> None:
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


def check_hedgehog_attention(check: "Check", dtype: torch.dtype) -> None:
    """On the batch, whose maps are replicated, and on heads with their maps.

    Of two windows and more: without a remainder behind them, gradients of alpha and beta are 0.
    """
    q, k, v = (torch.randn(2, 140, 4, 16).to(dtype) for _ in "qkv")
    maps = [0.3 * torch.randn(4, 16, 8).to(dtype) for _ in "qk"]
    mixes = [0.5 + torch.rand(4) / 2 for _ in "ab"]

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


def check_steps(check: "Check", dtype: torch.dtype) -> None:
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

    def of_hedgehog(q, k, v, q_map, k_map, alpha, beta, *state):
        given = thunderkittens.HedgehogState(*state)
        y = thunderkittens.hedgehog_attention_step(
            q, k, v, q_map, k_map, alpha=alpha, beta=beta, state=given
        )
        return (y, *given[:4])

    of_q, maps = torch.randn(2, 4, 8), torch.randn(4, 8, 6)
    state = [
        torch.rand(2, 4, 12, 8),
        torch.rand(2, 4, 12),
        *(torch.randn(2, 64, 4, 8) for _ in "kv"),
        torch.tensor([70, 3]),
    ]
    inputs = [of_q, of_q.flip(0), of_q.flip(1), maps, maps, torch.rand(4), torch.rand(4), *state]
    for place, of_heads, results in (
        (heads, batch, [heads, heads, heads, Shard(2), Shard(2)]),
        (batch, all_, [batch] * 5),
    ):
        length = all_ if place == heads else batch
        places = [place] * 3 + [of_heads] * 4 + [*results[1:], length]
        check("hedgehog step", of_hedgehog, inputs, places, results)
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
