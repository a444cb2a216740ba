"""mlp's kernels on a GPU: of rows enough for them, and what only a GPU shows."""

import dataclasses

import pytest
import torch

import thunderkittens
from tests.families.mlp import cases
from tests.families.mlp.cases import BF16, FP16, FP64, Case
from thunderkittens import _C
from thunderkittens.testing import memory

pytestmark = pytest.mark.gpu
ROWS = 1024  # with fewer torch's products are as fast
LAUNCHES = ("linear_gelu", "linear_gelu_backward")


def with_rows(case: Case, more: int) -> Case:
    """The same of 1024 rows and so many more."""
    return dataclasses.replace(case, leading=(ROWS + more,))


ALL = [
    *(with_rows(case, i) for i, case in enumerate(cases.sizes())),
    *(
        dataclasses.replace(case, leading=(2, 3, 179))
        for case in cases.options()
        if case.layout != "contiguous"
    ),
    *(Case((1100,), 64, 136, 8, BF16, a, bias=False) for a in ("none", "tanh")),
    *(Case((1100,), 64, 136, 8, BF16, a, large=30.0) for a in ("none", "tanh")),
    *(Case((8, 1024), 768, 3072, 768, BF16, "tanh", transposed=t) for t in (False, True)),
    Case((2000,), 1600, 6400, 1600, FP16),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, by our kernels; y, dx and gradients of biases with the same bits again."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()
    results = cases.run_case(case, inputs)
    after = _C.launch_counts()
    assert all(after[name] == before[name] + 1 for name in LAUNCHES)
    cases.check_case(case, inputs, results)
    for got, first in zip(cases.run_case(case, inputs), results, strict=True):
        assert memory.bits_equal(got, first)


def test_neighbours_do_not_show():
    """Results lie in memory of NaN, and what is behind the inputs is NaN, too."""
    case = Case((1030,), 136, 264, 72, BF16, "tanh")
    inputs = cases.make(case, "cuda")
    want = cases.run_case(case, inputs)

    def surrounded(t: torch.Tensor) -> torch.Tensor:
        room = t.new_full((t.numel() + 4096,), float("nan"))
        return room[2048 : 2048 + t.numel()].view(t.shape).copy_(t)

    spoilt = [torch.full((1 << 22,), float("nan"), device="cuda") for _ in range(8)]
    del spoilt
    for got, first in zip(cases.run_case(case, [*map(surrounded, inputs)]), want, strict=True):
        assert memory.bits_equal(got, first)


def test_graph_and_other_streams():
    """The bits of a call: in a graph, and beside products on another stream."""
    case = Case((4096,), 768, 3072, 768, BF16, "tanh")
    *given, dy = cases.make(case, "cuda")
    ops = torch.ops.thunderkittens

    def both() -> list[torch.Tensor]:
        y, hidden, activated = ops.mlp_forward(*given, approximate="tanh")
        gradients = ops.mlp_backward(dy, *given, hidden, activated, [True] * 5, approximate="tanh")
        return [y, hidden, activated, *gradients]

    want = both()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = both()
    other, noise = torch.cuda.Stream(), torch.randn(4096, 4096, device="cuda", dtype=BF16)
    for _ in range(5):
        with torch.cuda.stream(other):
            for _ in range(10):
                noise @ noise
        graph.replay()
        assert all(map(memory.bits_equal, got, want))
        assert all(map(memory.bits_equal, both(), want))


def test_what_is_torchs():
    """Few rows and long sums without a word, other dtypes with a reason."""
    for sizes in ((8, 64, 256, 64), (2048, 4096, 256, 64)):
        *given, _ = cases.make(Case(sizes[:1], *sizes[1:]), "cuda")
        assert "torch" in str(thunderkittens.explain("mlp", *given))
        thunderkittens.mlp(*given)
    *given, _ = cases.make(Case((2048,), 64, 256, 64, FP64), "cuda")
    with pytest.raises(RuntimeError, match="mlp: computed by torch: float64 is computed"):
        thunderkittens.mlp(*given)
