"""The activations' kernels, lane by lane on the CPU: the list of test_activation.py in small."""

import pytest
import torch

import thunderkittens
from tests.families.activation import cases
from tests.families.activation.cases import BF16, FP16, FP32, Case
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C
from thunderkittens.testing import check_memory, memory

pytestmark = needs_simulator

ALL = [
    *cases.sizes(),
    *cases.of_each_op(1032, (2,), layout="halves"),
    *cases.layouts(16),
    *cases.layouts(9)[::3],
    *cases.regimes(40),
    *cases.of_each_op(45, (130,), layout="halves"),
    Case("swiglu", 1, (130,), BF16, layout="sliced"),
]
ORDERED = [
    *cases.sizes((513, 1025)),
    Case("swiglu", 1032, (3,), BF16, layout="halves"),
    Case("swiglu", 1031, (3,), BF16, layout="halves"),
    Case("gelu", 531, (3,), FP32, layout="sliced"),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def launches() -> int:
    return sum(_C.launch_counts().values())


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours."""
    inputs = cases.make(case)
    before = launches()
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert launches() == before + 4  # two runs, forward and backward
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("check", [cases.check_edges, cases.check_not_finite])
def test_numbers_at_the_edge(check):
    with thunderkittens.backend("simulator"):
        check("cpu")


@pytest.mark.parametrize("case", ORDERED, ids=str)
def test_policies_agree(case):
    inputs = cases.make(case)
    check_policies_agree(lambda: cases.run_case(case, inputs))


@needs_race_mode
@pytest.mark.parametrize("case", ORDERED, ids=str)
def test_no_races(case):
    inputs = cases.make(case)
    check_no_races(lambda: cases.run_case(case, inputs))


@pytest.mark.parametrize("shape", [(9, 40), (5, 37), (200,), ()], ids=str)
def test_layout_changes_no_bit(shape):
    """From a copy, shifted or in runs: each element is computed alike."""
    gate, up = (torch.randn(shape).bfloat16() for _ in range(2))
    with thunderkittens.backend("simulator"):
        want = thunderkittens.swiglu(gate, up)
        stepped = torch.zeros(*shape, 2, dtype=BF16)[..., 0].copy_(gate)
        shifted = torch.zeros(gate.numel() + 1, dtype=BF16)[1:].view(shape).copy_(gate)
        for same in (stepped, shifted):
            assert memory.bits_equal(thunderkittens.swiglu(same, up), want)


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
@pytest.mark.parametrize("op", ["swiglu", "gelu"])
def test_rows_that_start_anywhere(op, dtype):
    with thunderkittens.backend("simulator"):
        for width in cases.UNALIGNED_WIDTHS:
            cases.check_rows_anywhere(Case(op, width, (3,), dtype), "cpu")


@pytest.mark.parametrize("width", [1, 9, 33, 77])
def test_many_rows_that_start_anywhere(width):
    """They are cut in groups, of which the last has fewer."""
    with thunderkittens.backend("simulator"):
        for rows in (63, 64, 65, 130):
            cases.check_rows_anywhere(Case("swiglu", width, (rows,), BF16), "cpu")


@pytest.mark.parametrize("width", [32, 33])
def test_rows_more_than_2_to_the_31_elements_apart(width):
    """In memory of which the rows alone are touched."""
    stride = 2**31 + width
    room = torch.empty(stride + 2 * width, dtype=BF16).as_strided((2, 2 * width), (stride, 1))
    halves = room.copy_(torch.randn(2, 2 * width)).chunk(2, dim=-1)
    inputs = [*halves, torch.randn(2, width).bfloat16()]
    case = Case("swiglu", width, (2,), BF16)
    with thunderkittens.backend("simulator"):
        results = cases.run_case(case, inputs)
        want = cases.run_case(case, [t.contiguous() for t in inputs])
    for got, same in zip(results, want, strict=True):
        assert memory.bits_equal(got, same)


@pytest.mark.parametrize("needs", [(True, False), (False, True)], ids=str)
@pytest.mark.parametrize(
    "case", [Case("swiglu", 129), Case("swiglu", 129, layout="halves")], ids=str
)
def test_gradients_that_are_wanted(case, needs):
    gate, up, dy = cases.make(case)
    with thunderkittens.backend("simulator"):
        full = cases.run_case(case, (gate, up, dy))[1:]
        leaves = [t.clone().requires_grad_(n) for t, n in zip((gate, up), needs, strict=True)]
        cases.call(case, leaves).backward(dy)
    for leaf, want, need in zip(leaves, full, needs, strict=True):
        assert (leaf.grad is not None) == need
        assert not need or torch.equal(leaf.grad, want)


def test_backward_outside_of_the_context():
    """The graph remembers who computed the forward."""
    for op in ("swiglu", "geglu", "gelu"):
        *inputs, dy = cases.make(Case(op, 40))
        with thunderkittens.backend("simulator"):
            y = cases.call(Case(op, 40), [t.requires_grad_() for t in inputs])
        before = _C.launch_counts()[f"{op}_backward"]
        y.backward(dy)
        assert _C.launch_counts()[f"{op}_backward"] == before + 1


@pytest.mark.parametrize("shape", [(0, 8), (3, 0)], ids=str)
def test_empty_launches_nothing(shape):
    x = torch.randn(shape, requires_grad=True)
    before = launches()
    with thunderkittens.backend("simulator"):
        thunderkittens.swiglu(x, x).sum().backward()
        thunderkittens.gelu(x).sum().backward()
    assert x.grad.shape == shape
    assert launches() == before


def test_explain():
    x = torch.randn(4, 6, 8)
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("swiglu", *x.chunk(2, dim=-1))
        copied = thunderkittens.explain("swiglu", x, torch.randn(6, 4, 8).transpose(0, 1))
        stepped = thunderkittens.explain("gelu", x[..., ::2])
        point = thunderkittens.explain("gelu", torch.tensor(1.0))
    assert (found.backend, found.notes) == ("simulator", ())
    assert (point.backend, point.notes) == ("simulator", ())
    assert "x is copied first: its strides [48, 8, 2]" in str(stepped)
    assert "up is copied first" in str(copied)


def test_float64_falls_back(monkeypatch):
    x = torch.ones(2, dtype=torch.float64)
    with thunderkittens.backend("simulator"):
        with pytest.raises(RuntimeError, match="gelu: computed by torch: float64 is computed"):
            thunderkittens.gelu(x)
        monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
        _C.forget_warnings()
        with pytest.warns(UserWarning, match="swiglu: computed by torch"):
            assert thunderkittens.swiglu(x, x).dtype == torch.float64
    assert thunderkittens.gelu(x.to(FP32)).dtype == FP32
