"""based_attention_step on a GPU: the list of its other tests, and what only a GPU shows."""

import pytest
import torch

from tests.families.based_attention import step_cases as cases
from tests.families.based_attention.step_cases import FP32, Case
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = pytest.mark.gpu

LARGE = [Case(64, 16), Case(40, 16, 16, 200, FP32, state_layout="offset")]
ALL = [*cases.widths(), *cases.options(), *cases.layouts(), *LARGE]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, the same bits with other neighbours, and by our kernel."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["based_attention_step"]
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    launches = _C.launch_counts()["based_attention_step"] - before
    assert launches == (2 if case.batch * case.heads else 0)
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_run_to_run(case):
    """The same bits every time, also while another stream keeps the GPU busy."""
    inputs = cases.make(case, "cuda")
    check_same_bits(lambda: cases.run_case(case, inputs))


def test_graph_goes_on_from_its_state():
    """Each replay of a captured step is one more token."""
    case = Case(4, 2)
    q, k, v, state, sums = cases.make(case, "cuda")
    wanted = [state.clone(), sums.clone()]
    cases.call(case, q, k, v, state.clone(), sums.clone())  # what is loaded lazily
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = cases.call(case, q, k, v, state, sums)
    for _ in range(3):
        graph.replay()
        want = cases.call(case, q, k, v, *wanted)
        assert torch.equal(o, want)
    assert torch.equal(state, wanted[0])
    assert torch.equal(sums, wanted[1])
