"""linear_attention_step on a GPU: the list of its other tests, and what only a GPU shows."""

import pytest
import torch

import thunderkittens
from tests.families.linear_attention import step_cases as cases
from tests.families.linear_attention.step_cases import BF16, FP16, FP32, FP64, Case
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = pytest.mark.gpu

LARGE = [
    Case(64, 32, 8, 128, 128),
    Case(1, 32, 32, 128, 128, dtype=FP32),
    Case(40, 16, 16, 64, 64, dtype=FP16, indices="int32", padding=3),
    Case(300, 16, 4, 256, 200, indices="int64", padding=5, state_layout="one of layers"),
]
ALL = [*cases.widths(), *cases.options(), *cases.indexed(), *cases.layouts(), *LARGE]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, the same bits with other neighbours, and by our kernel."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["linear_attention_step"]
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    launches = _C.launch_counts()["linear_attention_step"] - before
    assert launches == (2 if results[0].numel() else 0)
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("case", [Case(5, 2, 1, 16, 36, indices="int32", padding=2)], ids=str)
def test_fallback_reads_nothing_back(case, monkeypatch):
    """Torch's path, too, leaves the indices on the device."""
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    inputs = cases.make(case, "cuda")
    with thunderkittens.backend("torch"):
        cases.run_case(case, inputs)  # what is loaded lazily
        torch.cuda.set_sync_debug_mode("error")
        try:
            results = cases.run_case(case, inputs)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    cases.check_case(case, inputs, results)


def test_graph_takes_the_indices_of_each_replay():
    """A captured step follows states and indices that change between replays."""
    case = Case(4, 2, 1, 64, 64, indices="int64")
    q, k, v, state, decay, indices = cases.make(case, "cuda")

    def call():
        return thunderkittens.linear_attention_step(
            q, k, v, state, log_decay=decay, state_indices=indices
        )

    first = state.clone()
    call()  # what is loaded lazily
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = call()
    for slots in ([0, 1, 2, 3], [6, -1, 0, 5]):
        indices.copy_(torch.tensor(slots))
        state.copy_(first)
        graph.replay()
        results = [o, state.clone()]
        cases.check_case(case, (q, k, v, first, decay, indices), results)


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_run_to_run(case):
    """The same bits every time, also while another stream keeps the GPU busy."""
    inputs = cases.make(case, "cuda")
    check_same_bits(lambda: cases.run_case(case, inputs))


@pytest.mark.parametrize("dtype", [BF16, FP32], ids=str)
def test_steps_are_the_tokens_of_linear_attention(dtype):
    """To the roundings of the chunkwise form, which are those of q's dtype."""
    q, k, v = torch.randn(3, 2, 70, 4, 64, device="cuda").to(dtype).unbind()
    decay = -0.1 * torch.rand(2, 70, 4, device="cuda")
    state = torch.randn(2, 4, 64, 64, device="cuda")
    exact = [t.to(FP64) for t in (q, k, v, decay, state)]
    with thunderkittens.backend("torch"):
        want, last = thunderkittens.linear_attention(
            *exact[:3], log_decay=exact[3], initial_state=exact[4], output_final_state=True
        )
    outputs = [
        thunderkittens.linear_attention_step(
            q[:, t], k[:, t], v[:, t], state, log_decay=decay[:, t]
        )
        for t in range(70)
    ]
    # 70 roundings of a state in float32, and of o one of the dtype.
    torch.testing.assert_close(state.double(), last, rtol=1e-5, atol=1e-4)
    limit = {BF16: 2**-8, FP32: 1e-5}[dtype]
    torch.testing.assert_close(torch.stack(outputs, 1).double(), want, rtol=limit, atol=1e-4)


def test_more_elements_than_an_int_counts():
    """A state of 2³¹ elements and more: the last one is right."""
    states, heads, width = 2**15 + 8, 4, 128
    free, _ = torch.cuda.mem_get_info()
    if free < 3 * states * heads * width * width * 4:
        pytest.skip("not enough memory for the states")
    state = torch.zeros(states, heads, width, width, device="cuda")
    q, k, v = torch.randn(3, 1, heads, width, device="cuda").unbind()
    state[-1] = torch.randn(heads, width, width, device="cuda")
    before = state[-1].double()
    indices = torch.tensor([states - 1], device="cuda")
    o = thunderkittens.linear_attention_step(q, k, v, state, state_indices=indices)
    want = before + k[0].double()[..., None] * v[0].double()[:, None]
    torch.testing.assert_close(state[-1].double(), want, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        o[0].double(),
        width**-0.5 * (q[0].double()[..., None] * want).sum(1),
        rtol=1e-5,
        atol=1e-5,
    )
