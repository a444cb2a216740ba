"""The bounds of attention: what arithmetic may do, they allow; each test does it by hand."""

import math

import pytest
import torch

from tests.families.attention.fuzz_reference import Problem
from tests.fuzz import judge, session
from tests.fuzz.arithmetic import Arithmetic
from tests.fuzz.run import Runner, Setting

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
TORCH = Setting("cpu", "torch")


def problem(q, k, v, dtype, scale=1.0, **options) -> Problem:
    """Of q [G, Sq, D], k [Sk, D], v [Sk, Dv], where every row sees every key."""
    q, k, v = (t.double()[None, None] for t in (q, k[None], v[None]))
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
    return Problem(q, k, v, seen, scale, dtype, **options)


def gradients(stated: Problem, do) -> dict[str, judge.Judged]:
    return stated.gradients(do.double()[None, None], None)


# A sink's gradient below fp16's steps, alone and of each packed sequence; rows of q that overlap;
# heads whose gradients overflow before they are added up.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("op", "seed"),
    [
        ("attention", 716),
        ("attention", 2201),
        ("attention", 2767),
        ("scaled_dot_product_attention", 905),
        ("scaled_dot_product_attention", 3164),
    ],
)
def test_cases_that_have_failed(op, seed):
    outcome = Runner(TORCH).run(op, seed)
    assert not outcome.failures, session.line(TORCH, op, seed, "; ".join(outcome.failures))


# ---- Sums ----------------------------------------------------------------------------------------


def in_a_row(term: float, count: int) -> float:
    """`count` equal terms, added one after another in float64: many roundings have one sign."""
    total = 0.0
    for _ in range(count):
        total += term
    return total


def test_equal_terms_are_no_random_walk():
    count, arithmetic = 10000, Arithmetic.of(FP64)
    error = abs(in_a_row(0.1, count) / (0.1 * count) - 1)
    assert arithmetic.sum(count) < error < arithmetic.sum(count, generic=False)


def test_products_of_equal_rows():
    """dv = Σ p · do, 10,000 rows of 0.1 · 1, as cuBLAS adds them up in float64."""
    rows = 10000
    stated = problem(torch.zeros(1, rows, 1), torch.zeros(10, 1), torch.ones(10, 1), FP64)
    stated.generic = False
    judged = gradients(stated, torch.ones(1, rows, 1))["v"]
    error = abs(in_a_row(0.1, rows) - 1000.0)  # (The reference adds up in float64, too.)
    assert error < judged.bound.min()
    assert judged.bound.max() < 1e-8


# ---- Roundings of o ------------------------------------------------------------------------------


@pytest.mark.parametrize("generic_values", [False, True])
def test_equal_values_round_alike(generic_values):
    """v is constant, a sink takes 0.2 % of o, which rounding gives back: Σ do · o adds that up."""
    torch.manual_seed(0)
    rows, keys, width = 64, 32, 256
    q, k = torch.rand(1, rows, 8), torch.randn(keys, 8) / 64
    v, do = torch.full((keys, width), 1.7031), torch.ones(1, rows, width)
    stated = problem(q, k, v.bfloat16(), BF16, sinks=torch.full((1, 1), -2.7).double())
    stated.generic_values = generic_values
    judged = gradients(stated, do)["k"]
    p, values = stated.p[0, 0, 0], v.bfloat16().double()
    o = (p @ values).bfloat16().double()
    ds = p * (do[0].double() @ values.mT - o.sum(-1, keepdim=True))
    got = (ds.mT @ q[0].double())[None, None, None]
    assert bool(judge.right(got, judged).all()) is not generic_values


@pytest.mark.parametrize("fused", [True, False])
def test_only_fused_attention_rounds_weights(fused):
    torch.manual_seed(0)
    q, k, do = torch.randn(1, 64, 8), torch.randn(32, 8), torch.randn(1, 64, 16)
    stated = problem(q, k, torch.randn(32, 16), BF16, fused=fused)
    judged = gradients(stated, do)["v"]
    got = stated.p.bfloat16().double().mT @ do.double()[None, None]
    assert bool(judge.right(got, judged).all()) is fused


# ---- Gradients of sinks --------------------------------------------------------------------------


def sinks_gradient(dtype, logit: float, parts: int = 1) -> judge.Judged:
    """One row, one key of logit 0, and a sink of `logit`: −e^logit · δ, where δ is about 1."""
    one = torch.ones(1, 1)
    stated = problem(
        torch.zeros(1, 1, 1),
        torch.zeros(1, 1),
        one,
        FP16,
        sinks=torch.full((1, 1), logit).double(),
        sink_dtype=dtype,
        sink_parts=parts,
    )
    return gradients(stated, one[None])["sinks"]


def test_a_gradient_below_half_a_step_of_its_dtype_is_nothing():
    for dtype, nothing in ((FP16, True), (BF16, False), (FP32, False)):
        judged = sinks_gradient(dtype, -30.0)
        assert -1e-12 < judged.want < -1e-14
        assert bool(judge.right(torch.zeros(1, 1, dtype=dtype), judged)) is nothing


def test_each_packed_sequence_is_rounded():
    """Three parts, each a little below half a step: 0 each, and together 1.2 steps."""
    step = 2.0**-24
    for parts in (1, 3):
        judged = sinks_gradient(FP16, math.log(1.2 * step), parts)
        assert bool(judge.right(torch.zeros(1, 1).half(), judged)) is (parts == 3)


# ---- Overflow ------------------------------------------------------------------------------------


def free(judged: judge.Judged) -> list[bool]:
    """Of which rows anything is right; a row is all or nothing."""
    assert not judged.bound.isnan().any()
    rows = judged.bound.isinf().reshape(-1, judged.bound.shape[-1])
    assert bool((rows.any(-1) == rows.all(-1)).all())
    return rows.all(-1).tolist()


@pytest.mark.parametrize(
    ("dtype", "largest", "overflows"),
    [
        (FP16, 1e5, False),
        (FP16, 1e7, True),
        (BF16, 1e7, False),
        (FP16, 1e8, True),
        (BF16, 1e8, True),
    ],
    ids=str,
)
def test_what_overflows_is_free_and_so_is_what_is_made_of_it(dtype, largest, overflows):
    """Row 0 has a large logit at key 1, whose weight is e^(logit − lse), and lse is in float32.

    From 1e7 on its error may make it more than fp16 holds, from 1e8 on more than float32 does.
    """
    q = torch.tensor([[[largest, 0.0], [0.0, 1.0]]])
    k = torch.tensor([[0.0, 1.0], [1.0, 0.5], [0.5, 0.0]])
    torch.manual_seed(0)
    v, do = torch.randn(3, 2), torch.randn(1, 2, 2)
    found = gradients(problem(q, k, v, dtype, generic=False, exact=True), do)
    assert free(found["q"]) == [overflows, False]
    assert free(found["k"]) == [False, overflows, False]
    assert free(found["v"]) == [False, overflows, False]


def test_a_row_whose_scores_overflow_leaves_other_rows_alone():
    q = torch.tensor([[[1e30, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 2.0]]])
    k = torch.tensor([[1e30, 0.0], [0.0, 1.0]])
    found = gradients(problem(q, k, torch.ones(2, 1), FP32), torch.ones(2, 2, 1))
    assert free(found["q"]) == [True, False, False, False]
    assert free(found["k"]) == free(found["v"]) == [True, True]


@pytest.mark.parametrize("dtype", [FP16, BF16], ids=str)
def test_each_head_of_a_group_may_overflow(dtype):
    """dv of the two heads is 8e4 and −8e4: their sum is 0, or NaN where fp16 holds neither."""
    do = torch.full((2, 2, 1), 4e4)
    do[1] *= -1
    stated = problem(torch.zeros(2, 2, 1), torch.zeros(1, 1), torch.ones(1, 1), dtype)
    assert bool(gradients(stated, do)["v"].bound.isinf()) is (dtype == FP16)
