"""attention_qkvpacked's kernels, lane by lane on the CPU: attention's, with gradients in one."""

import dataclasses

import pytest
import torch

import thunderkittens
from tests.families.attention import cases
from tests.families.attention import qkvpacked_checks as checks
from tests.families.attention.cases import BF16, FP16, FP32, Case
from thunderkittens import _loader
from thunderkittens.testing import memory

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("generic", [False, True], ids=["", "generic"])
@pytest.mark.parametrize("case", checks.NUMBERS, ids=str)
def test_against_float64_and_attention(case, generic):
    with (
        thunderkittens.backend("simulator"),
        cases.kernels_of(dataclasses.replace(case, generic=generic)),
    ):
        checks.check_numbers(case, "cpu", launched=True)


@pytest.mark.parametrize("generic", [False, True], ids=["", "generic"])
def test_strides_change_no_bit(generic):
    case = Case(70, 70, True, key_heads=2, batch=2, generic=generic)
    with thunderkittens.backend("simulator"), cases.kernels_of(case):
        checks.check_layouts(case, "cpu")
        checks.check_layouts(dataclasses.replace(case, seqused_k=(60, 70)), "cpu")


@pytest.mark.parametrize("layout", checks.LAYOUTS)
def test_explain_says_what_is_copied(layout):
    qkv = checks.lay_out(torch.randn(2, 9, 3, 2, 64).to(BF16), layout).requires_grad_()
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("attention_qkvpacked", qkv)
    assert (found.op, found.backend) == ("attention_qkvpacked", "simulator")
    *copies, backward = found.notes
    assert backward == "its backward is computed by a kernel, too"
    assert len(copies) == (3 if layout in checks.COPIED else 0)
    assert all(f"{name} is copied first" in note for name, note in zip("qkv", copies, strict=False))


def test_a_fallback_names_the_op():
    qkv = torch.randn(1, 9, 3, 2, 20).to(BF16)
    message = "^attention_qkvpacked: .*head dimension 20 is not one of"
    with thunderkittens.backend("simulator"), pytest.raises(RuntimeError, match=message):
        thunderkittens.attention_qkvpacked(qkv)


@pytest.mark.parametrize("sinks", [FP32, FP16], ids=str)
def test_which_gradients_are_needed(sinks):
    with thunderkittens.backend("simulator"):
        checks.check_needs(Case(70, 70, True, key_heads=2, sinks=sinks, dtype=FP16), "cpu")


def test_tokens_of_no_sequence():
    with thunderkittens.backend("simulator"):
        checks.check_stray_tokens("cpu", BF16)


def copies_of_a_backward(call) -> set[str]:
    """What torch copies with in the backward of `call`, of a projection."""
    x = torch.randn(2, 70, 3 * 2 * 64).to(BF16).requires_grad_()
    o = call(x.unflatten(-1, (3, 2, 64)))
    dout = torch.ones_like(o)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.autograd.grad(o, x, dout)
    names = {event.key for event in profile.key_averages()}
    return names & {f"aten::{name}" for name in ("stack", "cat", "copy_", "clone", "add", "add_")}


def test_nobody_puts_gradients_together():
    """What the op is for: of three views autograd stacks three gradients."""
    with thunderkittens.backend("simulator"):
        assert not copies_of_a_backward(thunderkittens.attention_qkvpacked)
        of_three = copies_of_a_backward(lambda t: thunderkittens.attention(*t.unbind(2)))
        assert {"aten::stack", "aten::cat"} & of_three


def test_no_double_backward():
    with thunderkittens.backend("simulator"):
        checks.check_no_double_backward("cpu")


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic):
    with thunderkittens.backend("simulator"):
        checks.check_compiled(Case(9, 9, True, key_heads=2), "cpu", "aot_eager", dynamic)


@pytest.mark.skipif(not _loader.SIMULATOR_RACE.is_file(), reason="race mode is not built")
@pytest.mark.parametrize("case", checks.OF_EACH_KIND, ids=str)
def test_no_races(case):
    """Nor do policies change a bit."""
    tensors = [*checks.make(case), *cases.incoming(case, "cpu", with_lse=True)]
    with thunderkittens.backend("simulator", threads=1):
        want = checks.run(case, *tensors)
    for options in ({"policy": "lazy"}, {"policy": "random", "seed": 3, "race": True}):
        with thunderkittens.backend("simulator", **options):
            assert all(map(memory.bits_equal, checks.run(case, *tensors), want)), options
