"""attention's gradients in the simulator: by a kernel of ours where there is one, else by torch."""

import dataclasses

import pytest
import torch

import thunderkittens
from tests.families.attention import cases, gradients_reference, training
from tests.families.attention import gradient_checks as checks
from tests.families.attention import gradient_lists as lists
from tests.families.attention.cases import BF16, FP16, FP32, Case
from tests.families.attention.simulator_lists import POLICIES
from thunderkittens import _loader
from thunderkittens.testing import memory

pytestmark = [
    pytest.mark.skipif(
        not _loader.SIMULATOR.is_file(),
        reason="the simulator is not built (python -m build_tools simulator)",
    ),
    pytest.mark.filterwarnings("ignore:attention(_backward)?. computed by torch"),
]

PAIRS = [
    *((n, n) for n in lists.EDGES),
    *((1, 257), (257, 1), (65, 129), (129, 65), (64, 128), (128, 64), (130, 257)),
]
NUMBERS = [
    *lists.lengths(PAIRS),
    *lists.options(70, 130),
    *lists.random_cases(seed=21, count=40, longest=130, widest=128),
]
KINDS = [
    *lists.every_kind(70, 130, few_of_each=True),
    lists.Check(checks.check_no_double_backward, Case(20, 24, True, 2)),
    *(
        lists.Check(checks.check_compiled, Case(9, 12, True, 2), ("aot_eager", dynamic))
        for dynamic in (False, True)
    ),
]
OF_EACH_KIND = [
    Case(129, 257, False, 1, 64, BF16),
    Case(193, 193, True, 2, 64, FP16),
    Case(65, 129, True, 2, 128, BF16),
    Case(70, 200, False, 1, 128, FP16, key_heads=2, window_left=100, window_right=20),
]


@pytest.mark.parametrize("check", [*lists.numbers(NUMBERS), *KINDS], ids=str)
def test_in_the_simulator(check):
    with thunderkittens.backend("simulator"):
        check("cpu")


@pytest.mark.parametrize("case", OF_EACH_KIND, ids=str)
def test_policies_agree(case):
    """The order of threads, blocks and asynchronous work changes no bit; nor do more blocks."""
    tensors, dout, dlse = checks.tensors_of(case, "cpu", with_lse=True)
    with thunderkittens.backend("simulator", threads=1):
        want = checks.run(case, tensors, dout, dlse)
    for options in POLICIES:
        with thunderkittens.backend("simulator", **options):
            got = checks.run(case, tensors, dout, dlse)
        assert all(map(memory.bits_equal, got, want)), options


@pytest.mark.skipif(not _loader.SIMULATOR_RACE.is_file(), reason="race mode is not built")
@pytest.mark.parametrize("case", OF_EACH_KIND, ids=str)
def test_no_races(case):
    """Nothing is left to chance in shared memory, and the numbers are those without race mode."""
    tensors, dout, dlse = checks.tensors_of(case, "cpu", with_lse=True)
    with thunderkittens.backend("simulator"):
        want = checks.run(case, tensors, dout, dlse)
    with thunderkittens.backend("simulator", policy="random", seed=3, race=True):
        got = checks.run(case, tensors, dout, dlse)
    assert all(map(memory.bits_equal, got, want))


@pytest.mark.parametrize("change", [{}, {"head_dim": 128}, {"dtype": FP16}, {"group": 2}], ids=str)
def test_explain_says_who_differentiates(change):
    """What the references' bounds go by: a call is ours if its backward leaves torch out."""
    case = dataclasses.replace(Case(20, 24, True), **change)
    tensors = cases.make(case)
    with thunderkittens.backend("simulator"):
        ours = gradients_reference.is_ours(case, tensors)
        assert not gradients_reference.is_ours(case, [t.float() for t in tensors])
    assert not gradients_reference.is_ours(dataclasses.replace(case, dtype=FP32), tensors)
    assert isinstance(ours, bool)


def test_random_cases_are_many():
    drawn = lists.random_cases(seed=21, count=40, longest=130, widest=128)
    assert len(drawn) > 20 and any(case.packed for case in drawn)
    assert torch.float32 not in {case.dtype for case in drawn}


def test_training_runs_are_equal_to_the_bit(monkeypatch):
    """attention, layer_norm, linear_cross_entropy and AdamW, some steps, twice."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    sizes = training.Sizes(2, 70, 2, 1, 64, layers=1, steps=4)
    with thunderkittens.backend("simulator"):
        training.check(sizes, BF16, "cpu")


def test_ends_that_decrease_count_as_the_largest_before():
    case = Case(40, 40, True, 1, 64)
    q, k, v = (t.detach().squeeze(0).requires_grad_() for t in cases.make(case))

    def gradients(*ends):
        at = torch.tensor(ends, dtype=torch.int32)
        names = {"cu_seqlens_q": at, "cu_seqlens_k": at, "max_seqlen_q": 40, "max_seqlen_k": 40}
        o = thunderkittens.attention(q, k, v, causal=True, **names)
        return torch.autograd.grad(o.square().sum(), (q, k, v))

    with thunderkittens.backend("simulator"):
        got, want = gradients(3, 20, 7, -1, 33, 99), gradients(3, 20, 20, 20, 33, 40)
    assert all(map(memory.bits_equal, got, want))
