"""The problems on which hedgehog_attention_step is judged: some tokens after a state."""

import torch
from torch import Tensor

import thunderkittens
from tests.families.hedgehog_attention import cases
from tests.families.hedgehog_attention.cases import BLOCK, FP64, Case
from thunderkittens import HedgehogState
from thunderkittens.testing import assert_close, tolerance


def make(case: Case, device: str = "cpu") -> tuple[list[Tensor], list[Tensor], HedgehogState]:
    """q, k and v of the tokens [B, S, H, ·]; maps and weights; the state before them."""
    inputs = cases.make(case, device)
    return list(inputs[:3]), list(inputs[3:7]), HedgehogState(*inputs[7:])


def run(tokens: list[Tensor], fixed: list[Tensor], state: HedgehogState) -> list[Tensor]:
    """y of each token, [B, S, H, E], and the state behind them, of which the caller keeps his."""
    state = HedgehogState(*(t.clone() for t in state))
    q_map, k_map, alpha, beta = fixed
    outputs = [
        thunderkittens.hedgehog_attention_step(
            *(t[:, i] for t in tokens), q_map, k_map, alpha=alpha, beta=beta, state=state
        )
        for i in range(tokens[0].shape[1])
    ]
    return [torch.stack(outputs, 1), *state]


def definition(tokens: list[Tensor], fixed: list[Tensor], state: HedgehogState) -> list[Tensor]:
    """The same in float64 from the definition: y, Σ |a| |v| / D as its size, and the state."""
    q, k, v = (t.double() for t in tokens)
    q_map, k_map, alpha, beta = (t.double() for t in fixed)
    kv, k_sum, length = state.kv_state.double(), state.k_state.double(), state.length
    batch = range(q.shape[0])
    caches = [
        torch.stack([t[b].roll(-int(length[b]) % BLOCK, 0) for b in batch]).double()
        for t in (state.k_cache, state.v_cache)
    ]
    keys, values = torch.cat([caches[0], k], 1), torch.cat([caches[1], v], 1)
    of_q, of_k = cases.features(q, q_map), cases.features(keys, k_map)
    outputs, sizes = [], []
    for i in range(q.shape[1]):
        # Token i is row i + 64 of the keys; row i leaves.
        left = (length + i >= BLOCK).double()[:, None, None]
        kv = kv + (of_k[:, i] * left)[..., None] * values[:, i, :, None]
        k_sum = k_sum + of_k[:, i] * left
        window = slice(i + 1, i + 1 + BLOCK)
        exists = torch.arange(BLOCK, device=q.device) >= BLOCK - 1 - (length[:, None] + i)
        scores = torch.einsum("bhd,bjhd->bhj", q[:, i], keys[:, window]) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(~exists[:, None], -torch.inf)
        a = beta[:, None] * (scores - scores.amax(-1, keepdim=True)).exp()
        linear = alpha[:, None] * of_q[:, i]
        under = a.sum(-1) + (linear * k_sum).sum(-1)
        for sums, kv_part, part in ((outputs, kv, values), (sizes, kv.abs(), values.abs())):
            over = torch.einsum("bhj,bjhe->bhe", a, part[:, window])
            over = over + torch.einsum("bhf,bhfe->bhe", linear, kv_part)
            sums.append(over / under[..., None])
    return [torch.stack(outputs, 1), torch.stack(sizes, 1), kv, k_sum]


def check(case: Case, tokens, fixed, state: HedgehogState, results: list[Tensor]) -> None:
    """Asserts what `run` gave against float64; the caches, exactly."""
    y, size, kv, k_sum = definition(tokens, fixed, state)
    seq = tokens[0].shape[1]
    inner = FP64 if case.dtype == FP64 else torch.float32
    rough = 30.0  # of exponents: sums of 128 products of normal numbers
    bound = tolerance.hedgehog_attention(y, size + y.abs(), inner, 256, rough)
    bound = bound + 2 * tolerance.unit(case.dtype) * y.abs() + tolerance.floor(case.dtype)
    assert results[0].dtype == case.dtype
    assert_close(results[0], y, bound, "y")
    for name, got, want in zip(("kv_state", "k_state"), results[1:3], (kv, k_sum), strict=True):
        slack = tolerance.hedgehog_attention(want, want.abs() + seq, inner, seq + 256, rough)
        assert_close(got, want, slack, name)
    for cache, before, new in zip(results[3:5], state[2:4], tokens[1:], strict=True):
        want = before.clone()
        for b in range(case.batch):
            for i in range(seq):
                want[b, (int(state.length[b]) + i) % BLOCK] = new[b, i]
        assert torch.equal(cache, want)
    assert torch.equal(results[5], state.length + seq)
