"""attention's gradients, and a training run with them, have the same bits on every run."""

import dataclasses
import math
import warnings

import pytest
import torch

from tests.families.attention import gradient_cases, gradients_reference, training
from tests.families.attention import gradient_checks as checks
from tests.families.attention.cases import BF16, FP16, Case
from tests.stress.problem import Stress
from tests.stress.repeat import stress
from thunderkittens.testing import memory

pytestmark = pytest.mark.gpu

REPEATED = [
    Case(1000, 1100, key_heads=4, batch=4),
    Case(1500, 1500, True, 4, 128, key_heads=2, batch=3),
    Case(1023, 1023, True, 1, 64, FP16, key_heads=8, batch=2, window_left=200),
    Case(300, 2047, False, 2, 128, key_heads=2, batch=3),
]


def needs_our_kernel(case: Case) -> None:
    tensors, *_ = checks.tensors_of(case, "cuda", with_lse=False)
    if not gradients_reference.is_ours(case, tensors):
        pytest.skip("torch's FlashAttention, which computes this backward, adds dq up in any order")


@pytest.mark.parametrize("case", REPEATED, ids=str)
def test_a_thousand_runs(case):
    """Alone, and beside copies and products on another stream; and right."""
    needs_our_kernel(case)
    outcome = stress(Stress("attention_backward", case, gradient_cases), repeats=1000, seconds=12.0)
    torch.cuda.empty_cache()
    assert outcome.good, str(outcome)
    assert outcome.alone == outcome.beside == 1000, str(outcome)


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("where", ["k", "v"])
def test_rows_that_many_blocks_find_not_finite(where, head_dim):
    """One block of keys marks a row while others copy its factor: nothing depends on when."""
    case = Case(2000, 2100, True, 1, head_dim, key_heads=3)
    needs_our_kernel(case)
    checks.check_not_finite(case, "cuda", where, math.nan)
    tensors, dout, dlse = checks.tensors_of(case, "cuda", with_lse=True)
    tensors["kv".index(where) + 1][0, 700, 1, 5] = math.nan
    want = checks.run(case, tensors, dout, dlse)
    assert want[0][0, 800:, 1].isnan().all() and want[0][0, :400, 1].isfinite().all()
    for _ in range(50):
        assert all(map(memory.bits_equal, checks.run(case, tensors, dout, dlse), want))


@pytest.mark.parametrize("case", REPEATED[:2], ids=str)
def test_deterministic_algorithms_change_nothing(case):
    """Where torch's ops would raise or warn, this one gives the bits that it gives anyway."""
    needs_our_kernel(case)
    inputs = gradient_cases.make(case, "cuda")
    want = gradient_cases.run_case(case, inputs)
    with training.deterministic(), warnings.catch_warnings():
        warnings.simplefilter("error")
        got = gradient_cases.run_case(case, inputs)
    assert all(map(memory.bits_equal, got, want))


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_training_runs_are_equal_to_the_bit(head_dim, dtype, monkeypatch):
    """attention, layer_norm, linear_cross_entropy and AdamW, twenty steps, twice."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch asks for it
    sizes = training.Sizes(4, 300, 4, 2, head_dim, vocabulary=1000)
    training.check(sizes, dtype, "cuda")


@pytest.mark.parametrize("head_dim", [64, 128])
def test_training_is_deterministic_by_default(head_dim):
    """The same where nothing was said to torch: by default, no op of it is nondeterministic."""
    sizes = training.Sizes(4, 300, 4, 2, head_dim, vocabulary=1000, steps=5)
    case = Case(300, 300, True, 2, head_dim, key_heads=2, batch=4)
    needs_our_kernel(dataclasses.replace(case))
    runs = [training.train(sizes, BF16, "cuda") for _ in range(3)]
    assert all(all(map(memory.bits_equal, run, runs[0])) for run in runs[1:])
