"""Ranks that share the sequences of attention, and compare with float64 on the whole ones.

python -m tests.families.attention.ring_checks DEVICE
"""

import dataclasses
import sys

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import Replicate, distribute_tensor

import thunderkittens
from tests.families.attention import cases
from tests.families.attention.cases import BF16, FP32, FP64, Case
from tests.tools import ranks
from thunderkittens._loader import SIMULATOR
from thunderkittens.distributed import ring_attention, shard_sequence, unshard_sequence
from thunderkittens.distributed._ring import Ring, Shift

Group = dist.ProcessGroup

SMALL = Case(48, 48, True, 2, 16, FP32, key_heads=2, batch=2)
PACKED = (0, 24, 24, 72)
CASES = (
    SMALL,
    Case(24, 48, False, 2, 16, FP32, key_heads=2, batch=2, value_dim=24),
    Case(48, 48, True, 2, 16, FP32, 2, scale=0.3, softcap=5.0, sinks=FP32),
    Case(48, 48, False, 1, 16, FP32, 2, scale=0.5, sinks=FP32),
    Case(72, 72, True, 2, 16, FP32, 2, cu_seqlens_q=PACKED, cu_seqlens_k=PACKED),
    Case(72, 72, False, 1, 16, FP32, 2, cu_seqlens_q=PACKED, cu_seqlens_k=PACKED, sinks=FP32),
    Case(48, 48, True, 4, 16, BF16),
)
BY_KERNELS = (
    Case(512, 512, True, 2, 64, BF16, key_heads=2, batch=2),
    Case(256, 512, False, 1, 128, BF16, key_heads=2, softcap=20.0, sinks=FP32),
    Case(768, 768, True, 2, 64, BF16, cu_seqlens_q=(0, 256, 768), cu_seqlens_k=(0, 256, 768)),
)


@dataclasses.dataclass
class Shares:
    """What one rank has of a case.

    Attributes:
        given: q, k, v and, if there are, sinks.
        options: The keywords of ring_attention.
        sharing: Those of shard_sequence.
    """

    given: list[Tensor]
    options: dict
    sharing: dict

    def of(self, t: Tensor, dim: int = -3) -> Tensor:
        """A rank's share of q, o and the like."""
        return shard_sequence(t, dim, **self.sharing)

    def whole(self, t: Tensor, dim: int = -3) -> Tensor:
        """What all ranks have."""
        return unshard_sequence(t.detach(), dim, **self.sharing)


def shares_of(case: Case, tensors: list[Tensor], group: Group) -> Shares:
    """q, k, v and sinks as leaves, each rank's rows of them."""
    q, k, v, *extra = tensors
    options = cases.options(case, *extra)
    ends, sinks = options.get("cu_seqlens_q"), options.get("sinks")
    sharing = {"group": group, "causal": case.causal, "cu_seqlens": ends}
    given = [shard_sequence(t, -3, **sharing) for t in (q, k, v)]
    given += [] if sinks is None else [sinks.clone()]
    kept = {name: options[name] for name in ("causal", "scale", "softcap")} | {"group": group}
    if ends is not None:
        kept["cu_seqlens"] = ends // group.size()
        kept["max_seqlen"] = options["max_seqlen_q"] // group.size()
    return Shares([t.requires_grad_() for t in given], kept, sharing)


def call(shares: Shares) -> tuple[Tensor, Tensor]:
    """o and lse."""
    q, k, v, *sinks = shares.given
    extra = {"sinks": sinks[0]} if sinks else {}
    return ring_attention(q, k, v, return_lse=True, **extra, **shares.options)


def check(case: Case, group: Group, device: str, with_lse: bool) -> None:
    """o, lse and all gradients, with and without a gradient of lse; and the same bits again."""
    torch.manual_seed(0)
    tensors = cases.make(case, device)
    reference = cases.Reference(case, *tensors)
    shares = shares_of(case, tensors, group)
    o, lse = call(shares)
    parts = group.size()
    reference.check(shares.whole(o), shares.whole(lse, -1), parts=parts)
    do = torch.randn_like(shares.whole(o))
    dlse = torch.randn_like(shares.whole(lse, -1)) if with_lse else None
    results, incoming = [o], [shares.of(do)]
    if dlse is not None:
        results, incoming = [o, lse], [*incoming, shares.of(dlse, -1)]
    gradients = torch.autograd.grad(results, shares.given, incoming, retain_graph=True)
    found = [shares.whole(g) for g in gradients[:3]]
    for g in gradients[3:]:
        total = g.clone()
        dist.all_reduce(total, group=group)
        found.append(total)
    reference.check_gradients(do, dlse, *found, parts=parts)

    again = [*call(shares), *torch.autograd.grad(results, shares.given, incoming)]
    for one, other in zip((o, lse, *gradients), again, strict=True):
        assert torch.equal(one, other), "other bits on another run"


def check_float64(group: Group, device: str) -> None:
    """To float64's precision, what one process computes."""
    torch.manual_seed(0)
    case = dataclasses.replace(SMALL, dtype=FP64)
    tensors = [t.requires_grad_() for t in cases.make(case, device)]
    want = thunderkittens.attention(*tensors, causal=True)
    shares = shares_of(case, [t.detach() for t in tensors], group)
    got, lse = call(shares)
    do = torch.randn_like(want)
    expected = torch.autograd.grad(want, tensors, do)
    found = torch.autograd.grad(got, shares.given, shares.of(do))
    assert (got.dtype, lse.dtype) == (FP64, FP64)
    for one, other in zip((got, *found), (want, *expected), strict=True):
        torch.testing.assert_close(shares.whole(one), other.detach(), rtol=1e-12, atol=1e-12)


def check_what_is_needed(group: Group, device: str) -> None:
    """Gradients of some inputs alone are those that all have together."""
    torch.manual_seed(0)
    shares = shares_of(SMALL, cases.make(SMALL, device), group)
    o, _ = call(shares)
    do = torch.randn_like(o)
    together = torch.autograd.grad(o, shares.given, do, retain_graph=True)
    for i in range(3):
        given = [t.detach().requires_grad_(i == j) for j, t in enumerate(shares.given)]
        o, _ = call(dataclasses.replace(shares, given=given))
        assert torch.equal(torch.autograd.grad(o, given[i], do)[0], together[i])
    with torch.no_grad():
        assert call(shares)[0].grad_fn is None


def check_messages(group: Group, device: str) -> None:
    """What travels, and that sums do so in float32."""
    torch.manual_seed(0)
    case = dataclasses.replace(SMALL, dtype=BF16)
    shares = shares_of(case, cases.make(case, device), group)
    sent: list[list[torch.dtype]] = []
    shift = Ring.shift

    def watched(ring: Ring, tensors: list[Tensor]) -> Shift:
        sent.append([t.dtype for t in tensors])
        return shift(ring, tensors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ring, "shift", watched)
        o, _ = call(shares)
        assert sent == [[BF16, BF16]] * (group.size() - 1)
        sent.clear()
        torch.autograd.grad(o, shares.given, torch.randn_like(o))
    assert sent.count([BF16, BF16]) == group.size() - 1
    assert sent.count([FP32, FP32]) == len(sent) - group.size() + 1 == group.size()


def check_rows_of_no_sequence(group: Group, device: str) -> None:
    """They see no key in any step."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(6, 2, 16, device=device, requires_grad=True) for _ in "qkv")
    options = {"cu_seqlens": torch.tensor([0, 2, 4], device=device), "max_seqlen": 2}
    for causal in (False, True):
        o, lse = ring_attention(*(q, k, v), group=group, causal=causal, return_lse=True, **options)
        assert bool((o[4:] == 0).all() and (lse[:, 4:] == -torch.inf).all())
        assert bool(o[:4].isfinite().all() and lse[:, :4].isfinite().all())
        for gradient in torch.autograd.grad(o, (q, k, v), torch.randn_like(o)):
            assert bool((gradient[4:] == 0).all() and (gradient[:4] != 0).any())


def check_backend_of_backward(group: Group, case: Case) -> None:
    """It is that of the forward, wherever the backward is called."""
    torch.manual_seed(0)
    with thunderkittens.backend("simulator", threads=1):
        tensors = cases.make(case)
        assert cases.served_by(case, *tensors) == "simulator"
        check(case, group, "cpu", with_lse=True)
        shares = shares_of(case, tensors, group)
        o, _ = call(shares)
        do = torch.randn_like(o)
        want = torch.autograd.grad(o, shares.given, do, retain_graph=True)
    got = torch.autograd.grad(o, shares.given, do)
    assert all(map(torch.equal, got, want))
    assert cases.served_by(case, *tensors) == "torch"


def check_autocast(group: Group, device: str) -> None:
    """q, k and v take autocast's dtype, in the backward too."""
    torch.manual_seed(0)
    tensors = cases.make(SMALL, device)
    shares = shares_of(SMALL, tensors, group)
    halves = shares_of(SMALL, [t.to(BF16) for t in tensors], group)
    with torch.autocast(device, BF16):
        o, _ = call(shares)
    want, _ = call(halves)
    assert torch.equal(o, want)
    do = torch.randn_like(o)
    with torch.autocast(device, torch.float16):
        found = torch.autograd.grad(o, shares.given, do)
    expected = torch.autograd.grad(want, halves.given, do)
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, other.dtype) == (FP32, BF16)
        assert torch.equal(one, other.float())


def check_shards(group: Group, device: str) -> None:
    """Which positions a rank has, that shards are put together again, and their gradient."""
    size, rank = group.size(), group.rank()
    x = torch.arange(4 * size, device=device)
    zigzag = shard_sequence(x, 0, group=group)
    plain = shard_sequence(x, 0, group=group, causal=False)
    chunks = x.view(2 * size, 2)
    assert torch.equal(zigzag, torch.cat([chunks[rank], chunks[-1 - rank]]))
    assert torch.equal(plain, x.view(size, 4)[rank])
    assert torch.equal(unshard_sequence(zigzag, 0, group=group), x)
    assert torch.equal(unshard_sequence(plain, 0, group=group, causal=False), x)
    x = torch.randn(3, 4 * size, device=device, requires_grad=True)
    share = shard_sequence(x, 1, group=group)
    (gradient,) = torch.autograd.grad(share.square().sum(), x)
    assert torch.equal(shard_sequence(gradient, 1, group=group), 2 * share)
    assert gradient.count_nonzero() == share.numel()
    with pytest.raises(ValueError, match="unshard_sequence: x must not need a gradient"):
        unshard_sequence(share, 1, group=group)
    for wrong, ends, message in (
        (x[:, 1:], None, f"length must be a multiple of {2 * size}, 2 chunks for each"),
        (x, [0, 2, 4 * size], f"must be a multiple of {2 * size}, .* got 2; pad it"),
        (x, [0, 2 * size], f"cu_seqlens must count up from 0 to {4 * size}, got"),
        (x, [0.0, 1.0], "cu_seqlens must be int32 or int64"),
    ):
        ends = None if ends is None else torch.tensor(ends)
        with pytest.raises(ValueError, match=f"^shard_sequence: .*{message}"):
            shard_sequence(wrong, 1, group=group, cu_seqlens=ends)
    with pytest.raises(ValueError, match="^unshard_sequence: a sequence's length must be"):
        unshard_sequence(x.detach()[:, 1:], 1, group=group)


def check_mistakes(group: Group, device: str) -> None:
    """Each raises at once, with nothing on the way."""
    torch.manual_seed(0)
    q, k, v = shares_of(SMALL, cases.make(SMALL, device), group).given
    mesh = dist.device_mesh.DeviceMesh.from_group(group, device)
    whole = distribute_tensor(torch.zeros(2, 4, 4, 16, device=device), mesh, [Replicate()])
    elsewhere = torch.zeros(k.shape, device="meta")
    ends = torch.tensor([0, 2], device=device)
    for error, message, given, options in (
        (ValueError, "q must have shape", (q[0], k, v), {}),
        (ValueError, "k must have shape", (q, k[..., 1:], v), {}),
        (TypeError, "k must have dtype", (q, k.half(), v), {}),
        (ValueError, "softcap must be", (q, k, v), {"softcap": -1.0}),
        (ValueError, "max_seqlen_q", (q[0], k[0], v[0]), {"cu_seqlens": ends}),
        (ValueError, f"k must be on {q.device}, as q is, got meta", (q, elsewhere, v), {}),
        (TypeError, "v must be this rank's share, got a DTensor", (q, k, whole), {}),
        (ValueError, "of a causal call, .* two chunks", (q, k[:, 2:], v[:, 2:]), {"causal": True}),
        (ValueError, "of a causal call", tuple(t[:, 1:] for t in (q, k, v)), {"causal": True}),
    ):
        with pytest.raises(error, match=f"^ring_attention: .*{message}"):
            ring_attention(*given, group=group, **options)
    o = ring_attention(q, k, v, group=group, causal=True)
    (dq,) = torch.autograd.grad(o.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


def check_all(group: Group, device: str) -> None:
    """Everything, in one group."""
    for i, case in enumerate((*CASES, *(BY_KERNELS if device == "cuda" else ()))):
        check(case, group, device, with_lse=i % 2 == 0)
    check_float64(group, device)
    check_what_is_needed(group, device)
    check_messages(group, device)
    check_rows_of_no_sequence(group, device)
    check_autocast(group, device)
    check_shards(group, device)
    check_mistakes(group, device)


def main(device: str) -> None:
    """Runs all checks as one of the processes: in groups of all sizes that there are."""
    here, world = ranks.begin(device), dist.get_world_size()
    members = [[2, 3], [0, 1, 2], [0, 1, 2, 3]] if world == 4 else [list(range(world))]
    for chosen in members:
        group = dist.new_group(chosen)
        if here in chosen:
            check_all(group, device)
    if world == 4 and SIMULATOR.exists() and here < 2:
        group = dist.new_group([0, 1], use_local_synchronization=True)
        check_backend_of_backward(group, Case(128, 128, True, 2, 64, BF16))
    ranks.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
