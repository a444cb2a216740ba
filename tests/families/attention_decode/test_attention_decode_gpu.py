"""attention_decode's and cache_append's kernels on a GPU: the others' lists, and graphs."""

import pytest
import torch

import thunderkittens
from tests.families.attention_decode import append_cases, cases
from tests.families.attention_decode.cases import BF16, FP8, FP16, FP32, Case
from thunderkittens import _C
from thunderkittens.testing import memory

pytestmark = pytest.mark.gpu

LARGE = [
    Case((8192, 1, 5000, 8191), 1, 32, 8, 128),
    Case((4096,) * 8, 4, 32, 8, 128, page=64, dtype=FP16, sinks=FP32),
    Case((3000, 17) * 100, 1, 4, 1, 64, page=16),
    Case((20000,), 16, 8, 1, 128, window=(5000, None)),
    Case((20000, 9000, 1), 1, 8, 1, 128),  # parts in groups
    Case((8192, 1, 5000, 8191), 1, 32, 8, 128, cache=FP8),
    Case((4096,) * 16, 1, 32, 8, 128, page=64, cache=FP8),
    Case((8192, 1, 5000, 8191), 2, 16, 8, 256),
    Case((20000, 9000), 1, 8, 1, 192, page=16),
]
ALL = [
    *cases.shapes(),
    *cases.pages(),
    *cases.options(),
    *cases.padded(),
    *cases.paired(),
    *cases.wide(),
    *cases.narrow_caches(),
    *LARGE,
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_decode_against_float64(case):
    """Right, the same bits again, and by our kernel."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["attention_decode"]
    results = cases.run_case(case, inputs)
    assert _C.launch_counts()["attention_decode"] == before + 1
    cases.check_case(case, inputs, results)
    for _ in range(3):
        assert memory.bits_equal(cases.run_case(case, inputs)[0], results[0])


@pytest.mark.parametrize("case", append_cases.all_cases(), ids=str)
def test_append_against_float64(case):
    inputs = append_cases.make(case, "cuda")
    results = append_cases.run_case(case, append_cases.copied(inputs))
    append_cases.check_case(case, inputs, results)


@pytest.mark.parametrize("cache", [BF16, FP8])
@pytest.mark.parametrize("page", [0, 64])
def test_a_graph_serves_all_lengths(page, cache):
    """Captured once; replayed with other lengths it has the bits of a call with those."""
    case = Case((300,) * 5, 1, 8, 2, 128, capacity=4096, page=page)
    q, k, v, seqlens, table, *_ = cases.make(case, "cuda")
    k, v = (torch.randn(t.shape, device="cuda").to(cache) for t in (k, v))
    if page:  # every entry is one of the pool's
        table = torch.randperm(k.shape[0], device="cuda")[: table.numel()].view(table.shape).int()
    new = torch.randn(2, 5, 1, 2, 128, device="cuda", dtype=BF16)
    angle = torch.rand(4096, 64, device="cuda")

    def step():
        thunderkittens.cache_append(*new, k, v, seqlens, table, cos=angle.cos(), sin=angle.sin())
        return thunderkittens.attention_decode(q, k, v, seqlens=seqlens, page_table=table)

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = step()
    for lengths in ([1, 2, 3, 4, 5], [4096, 1, 0, 77, 2000], [4096] * 5, [0] * 5):
        seqlens.copy_(torch.tensor(lengths, dtype=torch.int32))
        graph.replay()
        replayed, caches = o.clone(), (k.clone(), v.clone())
        assert memory.bits_equal(step(), replayed), lengths
        assert memory.bits_equal(k, caches[0])
        assert memory.bits_equal(v, caches[1])


def test_streams_have_counters_of_their_own():
    """Calls on several streams at once have the bits of a call alone."""
    case = Case((3000, 700, 5000), 1, 8, 2, 128)
    some = [cases.make(case, "cuda") for _ in range(3)]
    alone = [cases.run_case(case, inputs)[0] for inputs in some]
    streams = [torch.cuda.Stream() for _ in some]
    torch.cuda.synchronize()
    results = []
    for _ in range(20):
        for inputs, stream, want in zip(some, streams, alone, strict=True):
            with torch.cuda.stream(stream):
                results.append((cases.run_case(case, inputs)[0], want))
    torch.cuda.synchronize()
    assert all(memory.bits_equal(o, want) for o, want in results)


def test_nothing_is_read_back():
    """No synchronisation of the host, neither by the kernels nor by torch's path."""
    q = torch.randn(2, 1, 4, 64, device="cuda", dtype=BF16)
    k, v = torch.randn(2, 2, 32, 2, 64, device="cuda", dtype=BF16)
    seqlens = torch.tensor([3, 32], device="cuda")
    table = torch.tensor([[0, 1], [1, 5]], device="cuda")

    def step(backend):
        with thunderkittens.backend(backend):
            thunderkittens.cache_append(k[:, :1].clone(), v[:, :1].clone(), k, v, seqlens, table)
            thunderkittens.attention_decode(q, k, v, seqlens=seqlens, page_table=table)

    for backend in ("auto", "torch"):
        step(backend)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            step(backend)
        finally:
            torch.cuda.set_sync_debug_mode("default")
