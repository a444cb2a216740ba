"""attention's gradients by the generic kernel, on a GPU of any architecture it is built for."""

import pytest

import thunderkittens
from tests.families.attention import cases, gradient_cases, gradients_reference
from tests.families.attention import gradient_checks as checks
from tests.families.attention import gradient_lists as lists
from tests.families.attention.cases import BF16, FP16, FP32, Case
from tests.families.attention.forward_checks import launches
from tests.tools.run_to_run import check_same_bits

pytestmark = pytest.mark.gpu

LARGE = [
    Case(1025, 2049, causal, 4, width, dtype, key_heads=2, batch=2)
    for causal in (False, True)
    for width, dtype in ((64, BF16), (80, FP16), (128, BF16), (192, FP16), (256, BF16))
]
NUMBERS = [
    *lists.lengths([(n, n) for n in lists.EDGES]),
    *lists.options(300, 450),
    *lists.options(450, 300),
    *lists.random_cases(seed=24, count=100, longest=385, widest=256),
    Case(333, 444, batch=2, seqused_k=(400, 33), leftpad_k=(0, 20), sinks=FP32),
    *LARGE,
]


@pytest.fixture(autouse=True)
def generic(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    with thunderkittens.backend("auto", kernel="generic"):
        yield


@pytest.mark.parametrize("check", [*lists.numbers(NUMBERS), *lists.every_kind(200, 333)], ids=str)
def test_on_a_gpu(check):
    before = launches("attention_backward")
    check("cuda")
    assert launches("attention_backward") > before


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_the_same_bits_on_every_run(case):
    inputs = gradient_cases.make(case, "cuda")
    check_same_bits(lambda: gradient_cases.run_case(case, inputs))


def test_the_kernel_of_the_forward_is_the_backwards():
    """Also outside of the context that chose it: the bits are those of a backward within it."""
    case = Case(200, 300, True, 2, 128)
    tensors, dout, _ = checks.tensors_of(case, "cuda", with_lse=False)
    assert gradients_reference.is_ours(case, tensors)
    want = checks.run(case, tensors, dout, None)
    leaves = [t.detach().requires_grad_() for t in tensors]
    o = thunderkittens.attention(*leaves, **cases.options(case))
    with thunderkittens.backend("torch"):
        o.backward(dout)
    assert checks.same(case, tensors, [t.grad for t in leaves], want)
