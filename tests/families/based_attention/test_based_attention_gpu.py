"""based_attention's kernels on a GPU: the lists of its other tests, and what only one can show."""

import pytest
import torch

import thunderkittens
from tests.families.based_attention import cases
from tests.families.based_attention.cases import BF16, FP16, Case
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = pytest.mark.gpu

LARGE = [
    Case(4, 1000, 16),
    Case(1, 4099, 4, dtype=FP16),
    Case(2, 2050, 8, value_width=32, normalize=False),
]
ALL = [
    *cases.lengths(),
    *cases.widths(),
    *cases.options(),
    *cases.layouts(),
    *LARGE,
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(params=[None, "generic"], ids=["specialised", "generic"])
def kernel(request):
    with thunderkittens.backend("auto", kernel=request.param):
        yield


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, the same bits with other neighbours, and by our kernel."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["based_attention"]
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert _C.launch_counts()["based_attention"] >= before + 2 * 3
    cases.check_case(case, inputs, results)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", cases.wide(), ids=str)
def test_wide_values(case):
    inputs = cases.make(case, "cuda")
    cases.check_case(case, inputs, cases.call(case, *inputs[:5]))


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_run_to_run(case):
    """The same bits every time, also while another stream keeps the GPU busy."""
    inputs = cases.make(case, "cuda")
    check_same_bits(lambda: cases.run_case(case, inputs))


def test_step_goes_on_where_the_kernel_ends():
    case = Case(2, 200, 4, states=True)
    q, k, v, state, sums, *_ = cases.make(case, "cuda")
    whole, *last = cases.call(case, q, k, v, state, sums)
    _, *states = cases.call(case, *(t[:, :199] for t in (q, k, v)), state, sums)
    o = thunderkittens.based_attention_step(*(t[:, 199] for t in (q, k, v)), tuple(states))
    torch.testing.assert_close(o.float(), whole[:, 199].float(), rtol=0.02, atol=0.02)
    torch.testing.assert_close(states, last, rtol=1e-2, atol=1e-2)


def test_more_elements_than_an_int_counts():
    """2³¹ elements and more of v: the last token of the last head is right."""
    batch, length, heads = 2, 2**18 + 64, 64
    free, _ = torch.cuda.mem_get_info()
    if free < 4 * batch * length * heads * 64 * 2:
        pytest.skip("not enough memory for four such tensors")
    q, k = (torch.randn(batch, length, heads, 16, device="cuda", dtype=BF16) for _ in "qk")
    v = torch.randn(batch, length, heads, 64, device="cuda", dtype=BF16)
    o = thunderkittens.based_attention(q, k, v, normalize=False)
    tail = [t[-1:, :, -1:].double() for t in (q, k, v)]
    of_q, of_k = (thunderkittens.based_features(t) for t in (tail[0][:, -1:], tail[1]))
    want = (of_k * of_q).sum(-1, keepdim=True).mul(tail[2]).sum(1)
    size = (of_k * of_q).abs().sum(-1, keepdim=True).mul(tail[2].abs()).sum(1)
    assert ((o[-1:, -1, -1:].double() - want).abs() <= 0.01 * size).all()
