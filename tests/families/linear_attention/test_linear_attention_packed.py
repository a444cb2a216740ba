"""linear_attention of packed sequences by torch: what no list of cases shows."""

import dataclasses
import itertools

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import thunderkittens
from tests.families.linear_attention import apart, cases
from tests.families.linear_attention.cases import BF16, FP32, FP64, Case
from tests.tools.aten_calls import Inside

# 0 and 64 tokens, a chunk and one more, chunks that are shared by none; strays behind them.
PACKED = Case(length=290, heads=4, key_heads=2, key_width=8, value_width=16, dtype=FP64)
ENDS = (0, 64, 64, 129, 130, 130, 258, 270)


def call(case: Case, q, k, v, decay, initial, ends) -> tuple[torch.Tensor, torch.Tensor]:
    return thunderkittens.linear_attention(
        q, k, v, log_decay=decay, initial_state=initial, output_final_state=True, cu_seqlens=ends
    )


def run(case: Case, inputs, ends) -> list[torch.Tensor]:
    """o, the final states, and the gradients of all inputs."""
    leaves = [t.detach().requires_grad_() for t in inputs[:5]]
    outputs = call(case, *leaves, torch.tensor(ends))
    return [*(t.detach() for t in outputs), *torch.autograd.grad(outputs, leaves, inputs[5:])]


def packed(case: Case, ends, strays: float = 0.0):
    """Its inputs; tokens of no sequence are `strays`, and so are the gradients of their o."""
    inputs = cases.make(dataclasses.replace(case, ends=ends))
    for i in (0, 1, 2, 3, 5):
        inputs[i][: ends[0]] = strays
        inputs[i][ends[-1] :] = strays
    return inputs


@pytest.mark.parametrize("ends", [ENDS, (0, 290), (20, 21, 150, 289), (5, 5, 5, 200, 200)], ids=str)
def test_is_each_sequence_by_itself(ends):
    """Of results and gradients; a sequence without a token passes its state on. Others are 0."""
    inputs = packed(PACKED, ends, strays=torch.nan)
    o, last, dq, dk, dv, d_decay, d_initial = run(PACKED, inputs, ends)
    for i, (start, end) in enumerate(itertools.pairwise(ends)):
        if start == end:
            assert torch.equal(last[i], inputs[4][i]) and torch.equal(d_initial[i], inputs[6][i])
            continue
        part, state = slice(start, end), slice(i, i + 1)
        one = [t[None, part] for t in inputs[:4]] + [inputs[4][state]]
        leaves = [t.detach().requires_grad_() for t in one]
        outputs = call(PACKED, *leaves, None)
        arriving = [inputs[5][None, part], inputs[6][state]]
        want = torch.autograd.grad(outputs, leaves, arriving)
        torch.testing.assert_close((o[None, part], last[state]), outputs)
        of_tokens = tuple(t[None, part] for t in (dq, dk, dv, d_decay))
        torch.testing.assert_close((*of_tokens, d_initial[state]), want)
    for t in (o, dq, dk, dv, d_decay):
        assert not t[: ends[0]].any() and not t[ends[-1] :].any()


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_numbers_out_of_range_or_order_are_clamped(index):
    inputs = cases.make(dataclasses.replace(PACKED, ends=(0, 64, 64, 290)))[:5]
    want = call(PACKED, *inputs, torch.tensor((0, 64, 64, 290), dtype=index))
    got = call(PACKED, *inputs, torch.tensor((-7, 64, 3, 1000), dtype=index))
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_more_sequences_than_tokens():
    """Of which all but a few have none: no chunk is made for them."""
    ends = (*range(4), *(3 for _ in range(500)), 5)
    case = dataclasses.replace(PACKED, length=5, heads=2, key_heads=2)
    inputs = packed(case, ends)
    with thunderkittens.backend("torch"), Inside() as seen:
        _, last, *_ = run(case, inputs, ends)
    assert torch.equal(last[3:-1], inputs[4][3:-1])
    assert seen.calls < 1000


def test_gradcheck():
    ends = (0, 2, 2, 5)
    case = Case(length=6, heads=2, key_heads=1, key_width=2, value_width=3, dtype=FP64, ends=ends)
    leaves = [t.requires_grad_() for t in cases.make(case)[:5]]
    numbers = torch.tensor(ends)
    assert torch.autograd.gradcheck(
        lambda *given: call(case, *given, numbers), leaves, fast_mode=True
    )


@pytest.mark.parametrize("which", apart.SPOILED)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [FP64, FP32, BF16], ids=str)
def test_not_finite_stays_in_its_sequence(dtype, value, which):
    case = dataclasses.replace(apart.APART, dtype=dtype)
    apart.check(case, which, lambda _: value)


@pytest.mark.parametrize("which", apart.SPOILED)
@pytest.mark.parametrize("dtype", [FP64, FP32, BF16], ids=str)
def test_large_gradients_take_no_digits_from_others(dtype, which):
    """The others have the same bits; and all are as near to float64 as their own size allows."""
    case = dataclasses.replace(apart.APART, dtype=dtype)
    apart.check(case, which, lambda x: x * 2.0**60, apart.GRADIENTS)
    inputs = list(cases.make(case))
    for i, place in ((5, slice(*case.ends[which : which + 2])), (6, which)):
        inputs[i][place] *= 2.0**60
    cases.check_case(case, inputs, cases.run_case(case, inputs))


def test_one_of_many_sequences():
    """Far behind large ones: as if it were alone, to the bounds of its own length."""
    ends = (*range(0, 2000, 40), 2003)
    case = Case(length=2003, heads=1, key_heads=1, key_width=8, value_width=8, dtype=FP32)
    case = dataclasses.replace(case, ends=ends)
    inputs = list(cases.make(case))
    inputs[5][:1000] *= 2.0**60
    cases.check_case(case, inputs, cases.run_case(case, inputs))


def test_a_traced_call_takes_other_sequences():
    """What make_fx has recorded inside depends on no number that one of them had."""
    case = dataclasses.replace(PACKED, dtype=FP32)
    ends, others = (0, 64, 64, 290), (3, 100, 164, 290)
    inputs = cases.make(dataclasses.replace(case, ends=ends))[:5]

    def inside(*given):
        with Inside(fake=True):
            return call(case, *given)

    with thunderkittens.backend("torch"):
        traced = make_fx(inside)(*inputs, torch.tensor(ends))
    names = {str(node.target) for node in traced.graph.nodes}
    assert any("bmm" in name for name in names) and not any("thunder" in name for name in names)
    for numbers in (ends, others):
        want = call(case, *inputs, torch.tensor(numbers))
        got = traced(*inputs, torch.tensor(numbers))
        torch.testing.assert_close(got, want, rtol=0, atol=0)
