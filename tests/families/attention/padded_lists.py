"""Calls of attention some of whose keys do not exist: the same in the simulator and on a GPU."""

from __future__ import annotations

import torch

import thunderkittens
from tests.families.attention import cases
from tests.families.attention.cases import BF16, FP16, FP32, Case
from thunderkittens.testing import memory

OUT_OF_RANGE = {"seqused_k": (90, 1_000_000, -3, 70), "leftpad_k": (20, -1_000_000, 5, 900)}


def padded(n: int, m: int) -> list[Case]:
    """Every option beside bounds of every kind, with rows and keys of about these numbers."""
    end, start = {"seqused_k": (m, m // 2)}, {"leftpad_k": (m // 3, 0)}
    both = {"seqused_k": (m - 3, m // 2 + 1), "leftpad_k": (m // 3, m // 2)}
    return [
        Case(n, m, batch=2, **end),
        Case(n, m, True, 2, batch=2, **start),
        Case(n, m, True, 2, 128, FP16, key_heads=2, batch=2, **both),
        Case(n, m, group=3, batch=2, window_left=n // 2, window_right=3, **both),
        Case(n, m, True, 2, 128, batch=2, window_left=40, sinks=FP32, **both),
        Case(n, m, True, batch=2, softcap=5.0, value_dim=40, **both),
        Case(n, m, False, 2, 40, FP16, batch=2, sinks=FP16, **end),
        Case(n, m, batch=4, sinks=FP32, **OUT_OF_RANGE),
        Case(n, m, True, 2, batch=4, **OUT_OF_RANGE),
        Case(n, 1, batch=3, seqused_k=(1, 0, 1), leftpad_k=(0, 0, 1)),
        Case(n, m, True, layout="odd ones", leftpad_k=(7,)),
        Case(n, m, True, 2, batch=2, layout="transposed", **both),
        Case(n, n, True, 2, batch=2, layout="packed", seqused_k=(n, n // 2)),
        Case(n, m, batch=2, layout="expanded", **both),
    ]


def wide(n: int, m: int) -> list[Case]:
    """The same of wide heads, whose kernels are others."""
    both = {"seqused_k": (m - 3, m // 2 + 1), "leftpad_k": (m // 3, m // 2)}
    return [
        Case(n, m, True, 2, 192, batch=2, **both),
        Case(n, m, False, 1, 256, FP16, batch=2, softcap=9.0, **both),
    ]


def check_strays_change_nothing(case: Case, device: str) -> None:
    """What lies where no key is changes no bit, and gets a gradient of 0."""
    tensors = cases.make(case, device)
    dout, dlse = cases.incoming(case, device, with_lse=True)

    def run(q, k, v, *extra):
        return *cases.forward(case, q, k, v, *extra), *cases.gradients(
            case, q, k, v, dout, dlse, extra
        )

    stray = ~case.exist().to(device)
    want = run(*tensors)
    assert not any(t[stray].any() for t in (want[3], want[4]))
    calm = [tensors[0], *(t.masked_fill(stray[..., None, None], 3.0) for t in tensors[1:3])]
    assert all(map(memory.bits_equal, run(*calm, *tensors[3:]), want))


def check_each_is_as_alone(case: Case, device: str) -> None:
    """Every batch gives what its keys give in a call by themselves."""
    q, k, v, *extra = cases.make(case, device)
    got, lse = cases.forward(case, q, k, v, *extra)
    bounds = {"seqused_k", "leftpad_k"}
    options = {n: x for n, x in cases.options(case, *extra).items() if n not in bounds}
    for batch, keys in enumerate(case.key_ranges()):
        one = slice(batch, batch + 1)
        o, one_lse = thunderkittens.attention(
            q[one], k[one, keys], v[one, keys], **options, return_lse=True
        )
        # Of o two roundings in 16 bits; in float32, of scores' sums of 64 products, in two orders.
        room = (32 if case.dtype == FP32 else 2) * torch.finfo(case.dtype).eps
        torch.testing.assert_close(got[one], o, rtol=room, atol=room)
        torch.testing.assert_close(lse[one], one_lse, rtol=1e-5, atol=1e-5)


def different_strides(device: str) -> tuple[Case, list[torch.Tensor]]:
    """k in the memory of [B, H, S, D], v of [B, S, H, D], of caches with room for more keys."""
    case = Case(70, 90, True, 2, 64, BF16, 2, 2, seqused_k=(80, 33), leftpad_k=(5, 0))
    q, k, v, *bounds = cases.make(case, device)
    k_cache, v_cache = k.new_full((2, 2, 128, 64), float("nan")), v.new_zeros(2, 111, 2, 64)
    k_cache[:, :, :90] = k.transpose(1, 2)
    v_cache[:, :90] = v
    return case, [q, k_cache.transpose(1, 2)[:, :90], v_cache[:, :90], *bounds]
