"""The tile counter of attention's dynamic schedule, of calls with a mask: 0 at each launch's start.

A launch that finds another number there, or shares it with one that runs at the same time, leaves
tiles out. What torch allocates is poisoned here, so that it shows.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import thunderkittens
from tests.families.attention import cases
from tests.families.attention.cases import FP16, Case
from thunderkittens import _loader
from thunderkittens.testing import memory

# Many more tiles than multiprocessors; the same of other lengths; fewer; a tile.
LARGE = Case(700, 700, True, 4, 64, key_heads=4, batch=8)
LAUNCHES = [
    LARGE,
    Case(1000, 300, True, 4, 128, FP16, key_heads=8, batch=5),
    Case(300, 400, True, 2),
    Case(20, 20, True),
    LARGE,
]
SMALL = [  # 12, 8, 2 and 1 tiles, for the simulator's 4 multiprocessors
    Case(200, 200, True, group=2, key_heads=3),
    Case(130, 70, True, group=4, head_dim=128),
    Case(193, 193, True),
    Case(9, 9, True),
]
COMPILED = """
import torch
import thunderkittens
from thunderkittens.testing import memory

compiled = torch.compile(thunderkittens.attention, mode="reduce-overhead")
q = torch.randn(8, 700, 16, 64, device="cuda", dtype=torch.bfloat16)
with torch.no_grad():
    for _ in range(4):  # one warms up, one records, the others replay
        o = compiled(q, q, q, causal=True).clone()
        assert memory.bits_equal(o, thunderkittens.attention(q, q, q, causal=True))
"""


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(autouse=True)
def poison():
    with memory.poisoned_outputs():
        yield


def check(results, wants) -> None:
    for got, want in zip(results, wants, strict=True):
        assert memory.bits_equal(got, want)


@pytest.mark.skipif(not _loader.SIMULATOR.is_file(), reason="the simulator is not built")
@pytest.mark.parametrize("threads", [1, 2])
def test_calls_leave_nothing_behind_in_the_simulator(threads):
    problems = [(case, cases.make(case)) for case in SMALL]
    with thunderkittens.backend("simulator", threads=threads):
        wants = [cases.forward(case, *tensors) for case, tensors in problems]
        for (case, tensors), want in zip(reversed(problems), reversed(wants), strict=True):
            check(cases.forward(case, *tensors), want)
    for (case, tensors), want in zip(problems, wants, strict=True):
        cases.check_case(case, tensors, want)


@pytest.mark.gpu
def test_calls_leave_nothing_behind():
    """One launch after the other, of other grids and numbers of tiles, with one counter."""
    problems = [(case, cases.make(case, "cuda")) for case in LAUNCHES]
    wants = [cases.forward(case, *tensors) for case, tensors in problems]
    for (case, tensors), want in zip(problems, wants, strict=True):
        cases.check_case(case, tensors, want)
    for _ in range(20):
        for (case, tensors), want in zip(problems, wants, strict=True):
            check(cases.forward(case, *tensors), want)


@pytest.mark.gpu
def test_streams_have_counters_of_their_own():
    """Launches on several streams overlap: one starts while another takes its last tiles."""
    tensors = cases.make(LARGE, "cuda")
    want = cases.forward(LARGE, *tensors)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda._sleep(20_000_000)  # until all are queued
    started = torch.cuda.Event()
    started.record()
    results = []
    for stream in streams:
        stream.wait_event(started)
    for _ in range(20):
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(cases.forward(LARGE, *tensors))
    torch.cuda.synchronize()
    for result in results:
        check(result, want)


@pytest.mark.gpu
def test_more_streams_than_torch_has():
    tensors = cases.make(LAUNCHES[2], "cuda")
    want = cases.forward(LAUNCHES[2], *tensors)
    torch.cuda.synchronize()
    for _ in range(100):
        with torch.cuda.stream(torch.cuda.Stream()):
            check(cases.forward(LAUNCHES[2], *tensors), want)


@pytest.mark.gpu
@pytest.mark.parametrize("shared", [False, True], ids=["streams", "one stream"])
def test_threads(shared):
    """Calls from several threads, each on a stream of its own or all on one."""
    tensors = cases.make(LARGE, "cuda")
    want = cases.forward(LARGE, *tensors)
    torch.cuda.synchronize()
    of_all = torch.cuda.Stream()

    def call_often(_):
        with torch.cuda.stream(of_all if shared else torch.cuda.Stream()):
            return [cases.forward(LARGE, *tensors) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        of_threads = list(pool.map(call_often, range(4)))
    torch.cuda.synchronize()
    for results in of_threads:
        for result in results:
            check(result, want)


def capture(case: Case, tensors) -> tuple[torch.cuda.CUDAGraph, tuple[torch.Tensor, torch.Tensor]]:
    """Two calls, one after the other, of which the second one's results are given."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cases.forward(case, *tensors)
        results = cases.forward(case, *tensors)
    return graph, results


@pytest.mark.gpu
def test_a_graph_replays_beside_eager_calls():
    """Also on the stream on which it has been captured, and eager calls there after it."""
    tensors = cases.make(LARGE, "cuda")
    want = cases.forward(LARGE, *tensors)
    graph, replayed = capture(LARGE, tensors)
    torch.cuda.synchronize()
    other = torch.cuda.Stream()
    copies, eager = [], []
    for _ in range(20):
        with torch.cuda.stream(other):
            graph.replay()
            copies.append([t.clone() for t in replayed])
        eager += [cases.forward(LARGE, *tensors) for _ in range(2)]
    torch.cuda.synchronize()
    graph.replay()
    eager.append(cases.forward(LARGE, *tensors))
    for result in [*copies, *eager, replayed]:
        check(result, want)


@pytest.mark.gpu
def test_two_graphs_replay_at_once():
    tensors = cases.make(LARGE, "cuda")
    want = cases.forward(LARGE, *tensors)
    graphs = [capture(LARGE, tensors) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in graphs]
    torch.cuda.synchronize()
    copies = []
    for _ in range(20):
        for stream, (graph, replayed) in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
                copies.append([t.clone() for t in replayed])
    torch.cuda.synchronize()
    for result in copies:
        check(result, want)


@pytest.mark.gpu
def test_branches_of_one_graph():
    """A capture that forks: its launches may run at the same time."""
    tensors = cases.make(LARGE, "cuda")
    want = cases.forward(LARGE, *tensors)
    torch.cuda.synchronize()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        results = [cases.forward(LARGE, *tensors)]
        with torch.cuda.stream(side):
            results.append(cases.forward(LARGE, *tensors))
        main.wait_stream(side)
    for _ in range(20):
        graph.replay()
        for result in results:
            check(result, want)


@pytest.mark.gpu
def test_compiled_into_graphs():
    """torch keeps the book of what lives in its graphs' memory: the counter must not be there.

    A process of its own: the first call on the stream on which torch warms up makes the counter.
    """
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
