"""hedgehog_attention on a GPU: the list of its other tests, and what only a GPU can show."""

import pytest
import torch

import thunderkittens
from tests.families.hedgehog_attention import cases, gradient_cases
from tests.families.hedgehog_attention.cases import BF16, FP16, Case
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = pytest.mark.gpu

LARGE = [
    Case(4, 1000, 16),
    Case(1, 4099, 4, dtype=FP16),
    Case(2, 2050, 8, states=False),
]
ALL = [
    *cases.lengths(Case()),
    *cases.options(Case()),
    *cases.layouts(Case()),
    *cases.widths(Case()),
    *cases.layouts(Case(heads=1, head_dim=72, value_dim=48)),
    Case(dtype=FP16),
    *LARGE,
]

LARGE_TRAINING = [
    Case(4, 1000, 16, states=False),
    Case(2, 2050, 8, dtype=FP16, states=False),
    Case(1, 4099, 2, states=False),
]
TRAINING = [*gradient_cases.ALL, *LARGE_TRAINING]


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
    before = _C.launch_counts()["hedgehog_attention"]
    results = check_memory(
        lambda *t: cases.run_case(case, t), *[t for t in inputs if t is not None]
    )
    assert _C.launch_counts()["hedgehog_attention"] >= before + 2
    cases.check_case(case, inputs, results)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_run_to_run(case):
    """The same bits every time, also while another stream keeps the GPU busy."""
    inputs = cases.make(case, "cuda")
    check_same_bits(lambda: cases.run_case(case, inputs))


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", TRAINING, ids=str)
def test_gradients_against_float64(case):
    """Right, within their tensors, the same bits with other neighbours, and by our kernels."""
    inputs = gradient_cases.make(case, "cuda")
    before = _C.launch_counts()["hedgehog_attention_backward"]
    results = check_memory(lambda *t: gradient_cases.run_case(case, t), *inputs)
    assert _C.launch_counts()["hedgehog_attention_backward"] >= before + 2
    gradient_cases.check_case(case, inputs, results)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", LARGE_TRAINING, ids=str)
def test_gradients_run_to_run(case):
    """The same bits every time, also while another stream keeps the GPU busy."""
    inputs = gradient_cases.make(case, "cuda")
    check_same_bits(lambda: gradient_cases.run_case(case, inputs))


def test_gradients_of_torch_in_float64():
    """Of long sequences, which the definition has no memory for: by torch's blocks."""
    case = Case(1, 16384, 4, states=False)
    inputs = gradient_cases.make(case, "cuda")
    got = gradient_cases.run_case(case, inputs)
    with thunderkittens.backend("torch"):
        want = gradient_cases.run_case(case, [t.double() for t in inputs])
    for ours, exact in zip(got, want, strict=True):
        error = (ours.double() - exact).norm()
        assert error <= 2**-7 * (exact.norm() + inputs[-1].double().norm() / 100)


def test_memory_of_a_backward_is_linear_in_tokens():
    def peak(length: int) -> int:
        case = Case(1, length, 4, states=False)
        inputs = gradient_cases.make(case, "cuda")
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        gradient_cases.run_case(case, inputs)
        return torch.cuda.max_memory_allocated() - held

    assert peak(16384) <= 4.2 * peak(4096)


def test_gradients_with_a_state_are_those_on_the_cpu(monkeypatch):
    """By torch in float32 on both, whose products differ by roundings; matrices are not TF32's."""
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    case = Case(2, 200, 2)
    inputs = cases.make(case)
    results = []
    for device in ("cpu", "cuda"):
        q, k, v, q_map, k_map, alpha, beta, *state = (
            t.to(device).requires_grad_(t.is_floating_point()) for t in (x.clone() for x in inputs)
        )
        y = thunderkittens.hedgehog_attention(
            q,
            k,
            v,
            q_map,
            k_map,
            alpha=alpha,
            beta=beta,
            initial_state=thunderkittens.HedgehogState(*state),
        )
        leaves = [q, k, v, q_map, k_map, alpha, beta, *state[:2]]
        results.append(torch.autograd.grad(y, leaves, torch.ones_like(y)))
    for got, want in zip(results[1], results[0], strict=True):
        # The result's own rounding, to bf16, and sums of 200 products of about 4 roundings each.
        assert (got.cpu().double() - want).norm() <= 2**-7 * want.double().norm()


def test_a_captured_graph():
    """The same bits when replayed with other inputs."""
    case = Case(2, 1100, 4, states=False)
    q, k, v, *fixed, alpha, beta = cases.make(case, "cuda")[:7]
    options = {"alpha": alpha, "beta": beta}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = thunderkittens.hedgehog_attention(q, k, v, *fixed, **options)
    q.copy_(torch.randn_like(q))
    graph.replay()
    assert torch.equal(y, thunderkittens.hedgehog_attention(q, k, v, *fixed, **options))


def test_more_elements_than_an_int_counts():
    """2³¹ elements and more of each tensor: the last tokens of the last head are right."""
    batch, length, heads, width = 2, 2**17 + 64, 64, 128
    free, _ = torch.cuda.mem_get_info()
    if free < 5 * batch * length * heads * width * 2:
        pytest.skip("not enough memory for four such tensors")
    q, k, v = (torch.randn(batch, length, heads, width, device="cuda", dtype=BF16) for _ in "qkv")
    maps = [torch.randn(heads, width, 64, device="cuda").to(BF16) / 8 for _ in "qk"]
    alpha, beta = torch.zeros(heads, device="cuda"), torch.ones(heads, device="cuda")
    y = thunderkittens.hedgehog_attention(q, k, v, *maps, alpha=alpha, beta=beta)
    tail = [t[-1:, -128:, -1:].double() for t in (q, k, v)]
    of_head = [t[-1:].double() for t in (*maps, alpha, beta)]
    want = cases.definition(*tail, *of_head)[0]
    torch.testing.assert_close(y[-1:, -64:, -1:].double(), want[:, -64:], rtol=0.02, atol=0.02)
