"""seqused_k and leftpad_k in attention's kernels on a GPU."""

import itertools

import pytest
import torch

import thunderkittens
from tests.families.attention import cases, forward_checks, padded_lists
from tests.families.attention import gradient_checks as checks
from tests.families.attention.cases import Case
from thunderkittens.testing import memory

pytestmark = pytest.mark.gpu

SIZES = ((70, 150), (200, 90), (1, 1000), (513, 1025), (1025, 700))
ALL = [
    *itertools.chain.from_iterable(padded_lists.padded(n, m) for n, m in SIZES),
    *itertools.chain.from_iterable(padded_lists.wide(n, m) for n, m in SIZES),
    # More tiles than multiprocessors.
    Case(300, 700, True, 4, 128, key_heads=8, batch=8, seqused_k=(700, 1, 0, 650, 333, 128, 90, 5)),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    forward_checks.check_numbers(case, "cuda")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_gradients(case):
    checks.check_numbers(case, "cuda", with_lse=True)


@pytest.mark.parametrize("case", padded_lists.padded(300, 520)[:6], ids=str)
def test_strays_change_nothing(case):
    padded_lists.check_strays_change_nothing(case, "cuda")


@pytest.mark.parametrize("case", padded_lists.padded(300, 520)[:6], ids=str)
def test_each_batch_is_as_alone(case):
    padded_lists.check_each_is_as_alone(case, "cuda")


def test_strides_of_k_and_v_differ():
    case, tensors = padded_lists.different_strides("cuda")
    got = cases.forward(case, *tensors)
    assert all(map(memory.bits_equal, got, cases.forward(case, *(t.contiguous() for t in tensors))))


def test_bounds_change_between_replays():
    """One CUDA graph of a forward and a backward serves all bounds: none is read by the host."""
    case = Case(200, 333, True, 2, 128, batch=2, seqused_k=(333, 100), leftpad_k=(0, 7))
    q, k, v, *bounds = cases.make(case, "cuda")
    k, v = (torch.randn_like(t) for t in (k, v))
    dout = torch.randn_like(q)

    def run(*bounds):
        return *cases.forward(case, q, k, v, *bounds), *cases.gradients(
            case, q, k, v, dout, None, bounds
        )

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run(*bounds)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(*bounds)
    for ends, starts in (((333, 333), (0, 0)), ((0, 200), (9, 150)), ((-4, 999), (-1, 400))):
        for place, numbers in zip(bounds, (ends, starts), strict=True):
            place.copy_(torch.tensor(numbers))
        graph.replay()
        assert all(map(memory.bits_equal, captured, run(*bounds)))


def test_nothing_is_read_back():
    case = Case(64, 90, True, batch=2, seqused_k=(80, 3))
    tensors = cases.make(case, "cuda")
    dout, _ = cases.incoming(case, "cuda", with_lse=False)
    cases.gradients(case, *tensors[:3], dout, None, tensors[3:])
    torch.cuda.set_sync_debug_mode("error")
    try:
        thunderkittens.attention(*tensors[:3], causal=True, seqused_k=tensors[3])
        cases.gradients(case, *tensors[:3], dout, None, tensors[3:])
    finally:
        torch.cuda.set_sync_debug_mode("default")
