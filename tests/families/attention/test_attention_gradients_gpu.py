"""attention's gradients on a GPU: the checks of the simulator, more and larger, and what only a GPU
can show. By a kernel of ours where there is one, else by torch."""

import itertools

import pytest
import torch

from tests.families.attention import cases, gradients_reference
from tests.families.attention import gradient_checks as checks
from tests.families.attention import gradient_lists as lists
from tests.families.attention.cases import BF16, FP16, FP32, Case
from thunderkittens.testing import memory

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:attention(_backward)?. computed by torch"),
]

LONGER = ((511, 513), (1025, 1025), (2049, 333), (333, 2049), (4097, 257))
# So many keys that dq is added up, whatever the head dimension.
MANY_KEYS = (705, 768, 769, 831)
NUMBERS = [
    *lists.lengths([*itertools.product(lists.EDGES, lists.EDGES), *LONGER]),
    *lists.lengths([*itertools.product(lists.EDGES, MANY_KEYS)]),
    *lists.options(300, 450),
    *lists.options(450, 300),
    *lists.options(300, 800),
    *lists.random_cases(seed=22, count=200, longest=385, widest=256),
    *lists.random_cases(seed=23, count=60, longest=1800, widest=128),
    Case(200, 300, batch=3, key_heads=80),  # more tiles than multiprocessors
    Case(200, 300, True, 4, 128, key_heads=40, batch=2),
]
WIDE = [(d, causal) for d in (192, 256) for causal in (False, True)]
KINDS = [
    *lists.every_kind(200, 333),
    *lists.every_kind(200, 777),
    *lists.numbers([Case(200, 333, causal, 2, d) for d, causal in WIDE]),
    *lists.numbers([Case(129, 257, True, 2, 192, dtype, value_dim=128) for dtype in (BF16, FP16)]),
    *(lists.Check(checks.check_outliers, Case(1000, 4000), where) for where in lists.outliers()),
    *(
        lists.Check(checks.check_compiled, Case(90, 120, True, 2), ("inductor", dynamic))
        for dynamic in (False, True)
    ),
    lists.Check(checks.check_no_double_backward, Case(20, 24, True, 2)),
]
FEW = [
    Case(333, 444, True, 2, 64, key_heads=2),
    Case(444, 333, False, 1, 128, FP16, 3),
    Case(300, 300, True, 1, 128, window_left=100, softcap=9.0, sinks=FP32),
]


@pytest.fixture(autouse=True)
def fallbacks(monkeypatch):
    """Torch computes what no kernel takes."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")


@pytest.mark.parametrize("check", [*lists.numbers(NUMBERS), *KINDS], ids=str)
def test_on_a_gpu(check):
    check("cuda")


# ---- Streams and graphs --------------------------------------------------------------------------


@pytest.mark.parametrize("case", FEW, ids=str)
def test_graph_capture(case):
    """Forward and backward in one CUDA graph; replays on new data are those of eager calls."""
    static, dout, dlse = checks.tensors_of(case, "cuda", with_lse=True)
    static += [dout, dlse]

    def run(given: list[torch.Tensor]) -> list[torch.Tensor]:
        return checks.run(case, given[:-2], given[-2], given[-1])

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run(static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(static)
    for _ in range(5):
        tensors, dout, dlse = checks.tensors_of(case, "cuda", with_lse=True)
        fresh = [*tensors, dout, dlse]
        for place, values in zip(static, fresh, strict=True):
            place.copy_(values)
        graph.replay()
        assert checks.same(case, tensors, [t.clone() for t in captured], run(fresh))
        gradients_reference.check(
            gradients_reference.judged(case, tensors, dout, dlse), list(captured)
        )


@pytest.mark.parametrize("case", FEW, ids=str)
def test_side_stream(case):
    """The backward waits for what is late on its own stream."""
    tensors, dout, dlse = checks.tensors_of(case, "cuda", with_lse=True)
    want = checks.run(case, tensors, dout, dlse)
    for _ in range(10):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            late = [t.clone() for t in (*tensors, dout, dlse)]
            got = [t.clone() for t in checks.run(case, late[:-2], late[-2], late[-1])]
        torch.cuda.current_stream().wait_stream(stream)
        assert checks.same(case, tensors, got, want)


def test_streams_side_by_side():
    """Backwards of several streams at once share nothing that they write."""
    case = Case(500, 600, True, 2, 64, key_heads=4)
    given = [checks.tensors_of(case, "cuda", with_lse=True) for _ in range(4)]
    want = [checks.run(case, *each) for each in given]
    streams = [torch.cuda.Stream() for _ in given]
    torch.cuda.synchronize()
    for _ in range(20):
        got = []
        for stream, each in zip(streams, given, strict=True):
            with torch.cuda.stream(stream):
                got.append(checks.run(case, *each))
        torch.cuda.synchronize()
        for a, b, each in zip(got, want, given, strict=True):
            assert checks.same(case, each[0], a, b)


def test_backward_from_another_thread_of_autograd():
    """o is computed on one stream and its backward asked for on another: torch orders the two."""
    case = FEW[0]
    tensors, dout, _ = checks.tensors_of(case, "cuda", with_lse=False)
    want = checks.run(case, tensors, dout, None)
    stream = torch.cuda.Stream()
    leaves = [t.requires_grad_() for t in tensors]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(5_000_000)
        o, _ = cases.forward(case, *leaves)
    o.backward(dout)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    assert checks.same(case, tensors, [t.grad for t in leaves], want)


# ---- Large tensors -------------------------------------------------------------------------------


def needs_memory(gib: int) -> None:
    torch.cuda.empty_cache()
    if torch.cuda.mem_get_info()[0] < gib << 30:
        pytest.skip(f"needs {gib} GiB of GPU memory")


def needs_our_kernel(case: Case, tensors: list[torch.Tensor]) -> None:
    if not gradients_reference.is_ours(case, tensors):
        pytest.skip("torch computes this backward: its offsets and its order are its own")


def test_rows_past_2_to_the_31_elements():
    """The last rows of a q of more elements have the dq of a small call, and alone a gradient."""
    needs_memory(48)
    small = Case(200, 100, False, 32, 128)
    tensors, tail, _ = checks.tensors_of(small, "cuda", with_lse=False)
    needs_our_kernel(small, tensors)
    want = checks.run(small, tensors, tail, None)
    q, k, v = tensors
    large = Case(2**19 + 200, 100, False, 32, 128)
    rows = torch.ones(1, large.rows, large.heads, 128, dtype=BF16, device="cuda")
    rows[:, -200:] = q
    dout = torch.zeros_like(rows)
    dout[:, -200:] = tail
    assert rows.numel() > 2**31
    dq, dk, dv = checks.run(large, [rows, k, v], dout, None)
    assert not dq[:, :-200].any()
    assert all(map(memory.bits_equal, (dq[:, -200:], dk, dv), want))


def test_batches_past_2_to_the_31_elements():
    """The last batches have the gradients that they have by themselves."""
    needs_memory(70)
    small = Case(32, 32, True, 1, 128, key_heads=32, batch=3)
    tensors, tail, _ = checks.tensors_of(small, "cuda", with_lse=False)
    needs_our_kernel(small, tensors)
    want = checks.run(small, tensors, tail, None)
    large = Case(32, 32, True, 1, 128, key_heads=32, batch=2**14 + 3)
    shape = (large.batch, 32, 32, 128)
    given = [torch.ones(shape, dtype=BF16, device="cuda") for _ in range(4)]
    for t, end in zip(given, (*tensors, tail), strict=True):
        t[-3:] = end
    assert given[0].numel() > 2**31
    got = checks.run(large, given[:3], given[3], None)
    assert all(memory.bits_equal(t[-3:], w) for t, w in zip(got, want, strict=True))
