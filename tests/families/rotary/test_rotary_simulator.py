"""rotary's kernel, lane by lane on the CPU: the list of test_rotary.py."""

import itertools

import pytest
import torch

import thunderkittens
from tests.families.rotary import cases
from tests.families.rotary.cases import BF16, FP16, FP32, Case
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
    *cases.widths(),
    *cases.options(),
    *cases.heads(),
    *cases.packings(),
    *cases.layouts(),
    *cases.layouts(6),
    # Many tokens of many heads, which a thread turns one after the other.
    *(Case(2, 257, 4, 2, 129, 128, BF16, interleaved=i, offsets="int64") for i in (False, True)),
]
SOME = [
    Case(2, 9, 5, 2, 64, 32, BF16),
    Case(2, 9, 5, 2, 64, 32, BF16, FP32, interleaved=True),
    Case(2, 9, 5, 2, 64, 32, FP32),
    Case(2, 9, 9, 3, 24, 12, FP32, interleaved=True),
    *cases.packings(),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def launches() -> int:
    return _C.launch_counts()["rotary"]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, the same bits with other neighbours; one launch a call."""
    inputs = cases.make(case)
    before = launches()
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    calls = 3 if case.layout != "expanded" else 2
    turned_in_place = case.pairs > 0 or case.layout == "expanded"
    assert launches() == before + 2 * (calls if turned_in_place else calls - 1)
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("check", (cases.check_not_finite, cases.check_wrong_lengths))
def test_numbers_at_the_edge(check):
    with thunderkittens.backend("simulator"):
        check("cpu")


@pytest.mark.parametrize("case", SOME, ids=str)
def test_policies_agree(case):
    inputs = cases.make(case)
    check_policies_agree(lambda: cases.run_case(case, inputs))


@needs_race_mode
@pytest.mark.parametrize("case", SOME, ids=str)
def test_no_races(case):
    inputs = cases.make(case)
    check_no_races(lambda: cases.run_case(case, inputs))


def test_backward_outside_of_the_context():
    """The graph remembers who computed the forward, also in place."""
    q, k, cos, sin, *_ = cases.make(Case(dtype=FP32))
    q.requires_grad_()
    for inplace, launched in ((False, 1), (True, 1)):
        with thunderkittens.backend("simulator"):
            turned = thunderkittens.rotary(q * 1, k.clone(), cos, sin, inplace=inplace)
        before = launches()
        turned[0].sum().backward()
        assert launches() == before + launched


@pytest.mark.parametrize("sizes", [(0, 3, 4, 64), (2, 0, 4, 64), (2, 3, 4, 0)], ids=str)
def test_empty_launches_nothing(sizes):
    q = torch.randn(sizes)
    angle = torch.rand(3, sizes[3] // 2)
    before = launches()
    with thunderkittens.backend("simulator"):
        assert thunderkittens.rotary(q, q, angle, angle)[0].shape == sizes
        thunderkittens.rotary(q, q.clone(), angle, angle, inplace=True)
    assert launches() == before


LAUNCHED_WIDTHS = (1, 8, 30, 80, 128, 132, 192, 256, 384, 500, 512, 768, 1000, 1024)
LAUNCHED_HEADS = ((1, 0), (2, 1), (5, 4), (12, 4))


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
@pytest.mark.parametrize("layout", ["contiguous", "offset"])
@pytest.mark.parametrize("width", LAUNCHED_WIDTHS)
def test_blocks_are_within_their_bounds(width, layout, dtype):
    """However many threads the heads of a token take, and whether bytes are aligned or not."""
    for (heads, key_heads), rotated in itertools.product(LAUNCHED_HEADS, {width, width // 8 * 4}):
        case = Case(1, 2, heads, key_heads, width, rotated - rotated % 2, dtype, layout=layout)
        q, k, cos, sin, *_ = cases.make(case)
        with thunderkittens.backend("simulator"):
            turned = thunderkittens.rotary(q, k, cos, sin)
        for got, want in zip(turned, thunderkittens.rotary(q, k, cos, sin), strict=True):
            torch.testing.assert_close(got, want)


def test_explain():
    qkv = torch.randn(2, 5, 3, 4, 8)
    q, k = qkv[:, :, 0], qkv[:, :, 1]
    cos = torch.rand(5, 4)
    stepped = cases.lay_out(q, "stepped")
    with thunderkittens.backend("simulator"):
        before = q.clone()
        found = thunderkittens.explain("rotary", q, k, cos, cos, inplace=True)
        copied = thunderkittens.explain("rotary", q, stepped, cos.T.contiguous().T, cos)
        back = thunderkittens.explain("rotary", stepped, k, cos, cos, inplace=True)
    assert torch.equal(q, before)
    assert (found.backend, found.notes) == ("simulator", ())
    assert "k is copied first: the elements of a row are not neighbours (strides [" in str(copied)
    assert "cos is copied first: " in str(copied)
    assert len(copied.notes) == 2
    assert "q is copied first, and back: " in str(back)


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("at", [0, 1, 32])
def test_tables_that_are_slices(dtype, at):
    """Of tables of full width, whose halves are alike, or at an address that is not aligned."""
    q, k, cos, sin, *_ = cases.make(Case(dtype=dtype))
    wide = [torch.cat([t.roll(at, 1)] * 2, 1)[:, at : at + 32] for t in (cos, sin)]
    with thunderkittens.backend("simulator"):
        results = [
            check_memory(lambda *t: thunderkittens.rotary(*t), q, k, *tables)
            for tables in ((cos, sin), wide)
        ]
    for got, want in zip(*results, strict=True):
        assert memory.bits_equal(got, want)


def test_more_tokens_than_a_block_has():
    """The grid counts the chunks of each batch; the last of them may be short."""
    for case in (Case(3, 50, 1, 1, 8, dtype=FP32), Case(5, 1, 1, 0, 16), Case(1, 131, 2, 1, 6)):
        inputs = cases.make(case)
        with thunderkittens.backend("simulator"):
            cases.check_case(case, inputs, cases.run_case(case, inputs))
