"""seqused_k and leftpad_k in attention's kernels, lane by lane on the CPU."""

import pytest
import torch

import thunderkittens
from tests.families.attention import cases, forward_checks, padded_lists
from tests.families.attention import gradient_checks as checks
from tests.families.attention.cases import Case
from tests.families.attention.forward_checks import launches
from thunderkittens import _loader
from thunderkittens.testing import memory

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)

FORWARD = [
    *padded_lists.padded(70, 150),
    *padded_lists.padded(200, 90),
    *padded_lists.wide(70, 150),
]
BACKWARD = [*padded_lists.padded(70, 150), *padded_lists.wide(40, 80)]
OF_EACH_KIND = [FORWARD[2], FORWARD[4], FORWARD[8]]
POLICIES = ({"policy": "lazy"}, {"policy": "random", "seed": 1}, {"policy": "random", "seed": 2})


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def all_results(case: Case, tensors, dout, dlse):
    gradients = cases.gradients(case, *tensors[:3], dout, dlse, tensors[3:])
    return [*cases.forward(case, *tensors), *gradients]


@pytest.mark.parametrize("case", FORWARD, ids=str)
def test_against_float64(case):
    with thunderkittens.backend("simulator"):
        forward_checks.check_numbers(case, "cpu")


@pytest.mark.parametrize("with_lse", [False, True], ids=["", "lse"])
@pytest.mark.parametrize("case", BACKWARD, ids=str)
def test_gradients(case, with_lse):
    before = launches("attention_backward")
    with thunderkittens.backend("simulator"):
        checks.check_numbers(case, "cpu", with_lse)
    assert launches("attention_backward") > before


@pytest.mark.parametrize("case", OF_EACH_KIND, ids=str)
def test_strays_change_nothing(case):
    with thunderkittens.backend("simulator"):
        padded_lists.check_strays_change_nothing(case, "cpu")


@pytest.mark.parametrize("case", OF_EACH_KIND, ids=str)
def test_policies_agree(case):
    tensors = cases.make(case)
    incoming = cases.incoming(case, "cpu", with_lse=True)
    with thunderkittens.backend("simulator", threads=1):
        want = all_results(case, tensors, *incoming)
    for options in POLICIES:
        with thunderkittens.backend("simulator", **options):
            got = all_results(case, tensors, *incoming)
        assert all(map(memory.bits_equal, got, want)), options


@pytest.mark.skipif(not _loader.SIMULATOR_RACE.is_file(), reason="race mode is not built")
@pytest.mark.parametrize("case", OF_EACH_KIND, ids=str)
def test_no_races(case):
    tensors = cases.make(case)
    incoming = cases.incoming(case, "cpu", with_lse=True)
    with thunderkittens.backend("simulator"):
        want = all_results(case, tensors, *incoming)
    with thunderkittens.backend("simulator", policy="random", seed=3, race=True):
        got = all_results(case, tensors, *incoming)
    assert all(map(memory.bits_equal, got, want))


def test_strides_of_k_and_v_differ():
    """Each is read where it lies, and what lies behind a cache's keys is not."""
    case, tensors = padded_lists.different_strides("cpu")
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain(
            "attention", *tensors[:3], **cases.options(case, *tensors[3:])
        )
        got = cases.forward(case, *tensors)
        want = cases.forward(case, *(t.contiguous() for t in tensors))
    assert (found.backend, found.notes) == ("simulator", ())
    assert all(map(memory.bits_equal, got, want))


def test_batches_between_rows_are_copied():
    """k as [S, B, H, D]: its batches are closer together than its rows."""
    case = Case(40, 50, True, batch=2, seqused_k=(50, 20))
    q, k, v, ends = cases.make(case)
    moved = k.transpose(0, 1).contiguous().transpose(0, 1)
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("attention", q, moved, v, causal=True, seqused_k=ends)
        without = thunderkittens.explain("attention", q, moved, v, causal=True)
        got, want = cases.forward(case, q, moved, v, ends), cases.forward(case, q, k, v, ends)
    reason = "the stride of its batches is not a multiple of that of its rows"
    assert [note.split(" (")[0] for note in found.notes] == [
        f"k is copied first, for seqused_k or leftpad_k: {reason}"
    ]
    assert without.notes == ()
    assert all(map(memory.bits_equal, got, want))


def test_explain_says_that_a_kernel_differentiates():
    case = Case(20, 30, batch=2, seqused_k=(30, 20))
    q, k, v, ends = cases.make(case)
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("attention", q.requires_grad_(), k, v, seqused_k=ends)
    assert found.notes == ("its backward is computed by a kernel, too",)


def test_no_keys_at_all():
    q = torch.randn(2, 5, 2, 64, dtype=torch.bfloat16)
    k = q[:, :0]
    with thunderkittens.backend("simulator"):
        o, lse = thunderkittens.attention(q, k, k, seqused_k=torch.tensor([3, 0]), return_lse=True)
    assert not o.any()
    assert bool((lse == -torch.inf).all())
