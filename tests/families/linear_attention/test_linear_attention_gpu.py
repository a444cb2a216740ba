"""linear_attention's kernels on a GPU: the lists of other tests, and what only a GPU can show."""

import pytest
import torch

import thunderkittens
from tests.families.linear_attention import cases, long_sequences
from tests.families.linear_attention.cases import BF16, FP32
from tests.families.linear_attention.lists import COMMON, LARGE
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(params=[None, "generic"], ids=["specialised", "generic"])
def kernel(request):
    with thunderkittens.backend("auto", kernel=request.param):
        yield


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", [*COMMON, *LARGE], ids=str)
def test_against_float64(case):
    """Right, within its tensors, the same bits with other neighbours, and by our kernel."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["linear_attention"]
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert _C.launch_counts()["linear_attention"] >= before + 8
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("which", [None, "generic"], ids=["specialised", "generic"])
@pytest.mark.parametrize("packed", [False, True], ids=["whole", "packed"])
@pytest.mark.parametrize("kind", long_sequences.DECAYS)
def test_gradients_of_decays_over_long_sequences(kind, packed, which):
    long_sequences.check(kind, 65536, 4, packed, which, "cuda")


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_run_to_run(case):
    """The same bits every time, also while another stream keeps the GPU busy."""
    inputs = cases.make(case, "cuda")
    check_same_bits(lambda: cases.run_case(case, inputs))


@pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
def test_a_graph_takes_the_sequences_of_each_replay(dtype, monkeypatch):
    """By torch, too, which computes float32: where sequences end is never read back."""
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    case = cases.packed(dtype)[0]
    *inputs, d_o, d_final = cases.make(case, "cuda")
    leaves = [t.requires_grad_() for t in inputs]
    ends = torch.tensor(case.ends, device="cuda")

    def call():
        q, k, v, decay, initial = leaves
        outputs = thunderkittens.linear_attention(
            q,
            k,
            v,
            log_decay=decay,
            initial_state=initial,
            output_final_state=True,
            cu_seqlens=ends,
        )
        return [*outputs, *torch.autograd.grad(outputs, leaves, (d_o, d_final))]

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()  # what is loaded lazily
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    for numbers in (case.ends, (0, 1, 130, 130, 200)):
        ends.copy_(torch.tensor(numbers))
        graph.replay()
        for got, want in zip(captured, call(), strict=True):
            torch.testing.assert_close(got, want)


def test_more_elements_than_an_int_counts():
    """2³¹ elements and more of each tensor: the last token of the last head is right."""
    batch, length, heads, width = 2, 2**17 + 64, 64, 128
    free, _ = torch.cuda.mem_get_info()
    if free < 5 * batch * length * heads * width * 2:
        pytest.skip("not enough memory for four such tensors")
    q, k, v = (torch.randn(batch, length, heads, width, device="cuda", dtype=BF16) for _ in "qkv")
    decay = torch.full((heads,), -0.5, device="cuda")
    o = thunderkittens.linear_attention(q, k, v, log_decay=decay)
    part = slice(length - 70, None)
    tail = [t[-1:, part, -1:].double() for t in (q, k, v)]
    want, _ = cases.recurrence(*tail, decay[-1:].double(), None, width**-0.5)
    torch.testing.assert_close(o[-1:, -1:, -1:].double(), want[:, -1:], rtol=0.02, atol=0.05)


def test_explain_says_that_it_is_the_generic_kernel():
    q = torch.randn(1, 9, 2, 64, device="cuda", dtype=BF16)
    with thunderkittens.backend("auto", kernel="generic"):
        found = thunderkittens.explain("linear_attention", q, q, q)
    assert found.backend == "cuda"
    assert found.reason.endswith("it is the generic kernel")
