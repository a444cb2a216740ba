"""attention's gradients by the public op, as torch computes them: what kernels are asked too.

The lists and the checks are shared with test_attention_gradients_simulator.py and
test_attention_gradients_gpu.py.
"""

import dataclasses

import pytest
import torch

from tests.families.attention import cases, gradients_reference, training
from tests.families.attention import gradient_checks as checks
from tests.families.attention import gradient_lists as lists
from tests.families.attention.cases import BF16, FP16, FP32, FP64, Case
from tests.fuzz import judge

NUMBERS = [
    *lists.lengths([(1, 1), (64, 64), (129, 129), (65, 129), (129, 64), (1, 255)]),
    *lists.options(70, 90),
    *(dataclasses.replace(c, dtype=FP32, sinks=c.sinks and FP32) for c in lists.options(40, 60)),
    *lists.random_cases(seed=20, count=40, longest=64, widest=64),
]
KINDS = lists.every_kind(33, 70, few_of_each=True)


@pytest.mark.parametrize("check", [*lists.numbers(NUMBERS), *KINDS], ids=str)
def test_on_the_cpu(check):
    check("cpu")


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic):
    """The ATen ops are traced one by one here; the kernels' side is in the simulator."""
    checks.check_compiled(Case(9, 12, True, 2), "cpu", "aot_eager", dynamic)


# ---- The bounds themselves -----------------------------------------------------------------------


BOUNDED = [
    Case(129, 193, True, 2, 128, FP16),
    Case(65, 300),
    Case(257, 257, True, softcap=3.0, sinks=FP32),
    Case(200, 200, group=4, window_left=30, window_right=9),
]


def exact(case: Case) -> tuple[list, torch.Tensor, dict]:
    tensors, dout, dlse = checks.tensors_of(case, "cpu", with_lse=True)
    return tensors, dout, gradients_reference.judged(case, tensors, dout, dlse)


@pytest.mark.parametrize("case", BOUNDED, ids=str)
def test_bounds_are_narrow(case):
    """They tell a wrong gradient from a rounded one: beside it they are a few units."""
    gradients_reference.check_power(exact(case)[2], 16 * torch.finfo(case.dtype).eps)


def by_formula(case: Case, tensors, dout, dlse, mistake: str) -> list[torch.Tensor]:
    """dq, dk, dv in float64, of a call without options, with one thing wrong."""
    q, k, v = (t.double().transpose(1, 2) for t in tensors)
    k, v = (t.repeat_interleave(case.group, 1) for t in (k, v))
    do = dout.double().transpose(1, 2)
    s = (q @ k.mT * case.head_dim**-0.5).masked_fill(~case.seen(), -torch.inf)
    p = s.softmax(-1).nan_to_num(0.0)
    delta = (do * (p @ v)).sum(-1) - (0.0 if mistake == "no dlse" else dlse.double())
    ds = p * (do @ v.mT - (0.0 if mistake == "no delta" else delta[..., None]))
    ds = ds * (1.0 if mistake == "no scale" else case.head_dim**-0.5)
    if mistake == "one key is left out":
        ds[..., 64] = 0
    if mistake == "the diagonal is off by one":
        ds, p = (t.tril(case.keys - case.rows - 1) for t in (ds, p))
    if mistake == "rounded too early":  # dp, to 16 bits, before delta is taken from it
        ds = p * ((do @ v.mT).to(case.dtype).double() * 1.03 - delta[..., None])
        ds = ds * case.head_dim**-0.5
    dq, dk, dv = ds @ k, ds.mT @ q, p.mT @ do
    dk, dv = (t.unflatten(1, (-1, case.group)) for t in (dk, dv))
    last = case.group - (mistake == "a head of the group is left out")
    dk, dv = (t[:, :, :last].sum(2) for t in (dk, dv))
    return [t.transpose(1, 2).to(case.dtype) for t in (dq, dk, dv)]


MISTAKES = ("no delta", "no dlse", "no scale", "one key is left out", "rounded too early")
MISTAKES = (*MISTAKES, "a head of the group is left out", "the diagonal is off by one")


@pytest.mark.parametrize("mistake", ["", *MISTAKES])
@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
def test_what_the_bounds_notice(dtype, mistake):
    """The formula as it is passes; with a term, a key or a head too few it does not."""
    case = Case(130, 130, True, 2, 64, dtype, key_heads=2)
    tensors, dout, dlse = checks.tensors_of(case, "cpu", with_lse=True)
    found = gradients_reference.judged(case, tensors, dout, dlse)
    got = by_formula(case, tensors, dout, dlse, mistake)
    names = ("dq", "dk", "dv")
    wrong = [n for n, t in zip(names, got, strict=True) if not judge.right(t, found[n]).all()]
    assert bool(wrong) == bool(mistake)


@pytest.mark.parametrize("outlier", [1.0, 1000.0])
@pytest.mark.parametrize("spare", [0, 9])
def test_integers_of_dq(outlier, spare):
    """What dq loses in integers is within its part of the bound, with `spare` bits fewer not."""
    case = Case(64, 1000)
    tensors, dout, _ = checks.tensors_of(case, "cpu", with_lse=False)
    tensors[2][:, 500] *= outlier
    q, k, v = (t[0, :, 0].double() for t in tensors)
    do, found = dout[0, :, 0].double(), {}
    for integers in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gradients_reference, "is_ours", lambda *_, on=integers: on)
            found[integers] = gradients_reference.judged(case, tensors, dout, None)["dq"]
    room = (found[True].bound - found[False].bound)[0, :, 0]
    p = (q @ k.T / 8).softmax(-1)
    dp = do @ v.T
    ds = p * (dp - (p * dp).sum(-1, keepdim=True))
    bound = (do.norm(dim=-1) * v.norm(dim=-1).max() + (p * dp).sum(-1).abs()) * k.abs().max()
    factor = 2.0 ** (29 - spare - bound.log2().floor())[:, None]
    parts = [(ds[:, i : i + 128] @ k[i : i + 128]) for i in range(0, case.keys, 128)]
    assert all((t * factor).abs().max() < 2**30 for t in parts)
    lost = sum((t * factor).round() for t in parts) / factor - sum(parts)
    assert bool((lost.abs() / 8 <= room * 1.0001).all()) == (spare == 0)


def test_the_formula_of_what_is_not_finite():
    """`formula`, by sums over pairs, is autograd's."""
    case = Case(9, 12, True, head_dim=4, dtype=FP64)
    tensors, dout, dlse = checks.tensors_of(case, "cpu", with_lse=True)
    given = [*(t[0, :, 0] for t in (*tensors, dout)), dlse[0, 0].double()]
    seen = case.seen()
    got = checks.formula(seen, seen, 0.5, *given)
    want = cases.gradients(case, *tensors, dout, dlse.double())
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b[0, :, 0])


@pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
def test_training_runs_are_equal_to_the_bit(dtype):
    training.check(training.Sizes(2, 30, 4, 2, 16), dtype, "cpu")
