"""linear_attention's kernels, the one for Hopper and the generic one, lane by lane on the CPU."""

import json

import pytest
import torch

import thunderkittens
from tests.families.linear_attention import apart, cases, long_sequences
from tests.families.linear_attention.cases import BF16, Case
from tests.families.linear_attention.lists import COMMON, SEGMENTS, SOME
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = needs_simulator


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(params=[None, "generic"], ids=["specialised", "generic"])
def kernel(request) -> str | None:
    return request.param


def launches() -> int:
    return _C.launch_counts()["linear_attention"]


@pytest.mark.parametrize("case", [*COMMON, *SEGMENTS], ids=str)
def test_against_float64(case, kernel):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = cases.make(case)
    before = launches()
    with thunderkittens.backend("simulator", kernel=kernel):
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert launches() >= before + 2 * 4
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_a_value_that_decays_is_rounded_once(dtype, kernel):
    """Keys are the rows of an identity, so each row of the state is one token's decayed value."""
    tokens, heads = 64, 2
    v = torch.randn(1, tokens, heads, 64, generator=torch.Generator().manual_seed(1)).to(dtype)
    k = torch.eye(tokens, dtype=dtype)[None, :, None].expand(1, tokens, heads, tokens)
    decay = torch.tensor([-0.01, -0.123])
    with thunderkittens.backend("simulator", kernel=kernel):
        _, state = thunderkittens.linear_attention(
            k, k, v, log_decay=decay, output_final_state=True
        )
    left = torch.arange(tokens - 1, -1, -1)[:, None] * decay.double()  # [tokens, heads]
    want = (left.exp()[None, :, :, None] * v.double()).transpose(1, 2)
    # Half a unit of the type, which is no less near zero; and of the factor 2⁻¹⁴, and units of
    # float32.
    info = torch.finfo(dtype)
    bound = (info.eps / 2 + 2**-14 + 2**-20) * want.abs() + info.smallest_normal * info.eps / 2
    assert ((state.double() - want).abs() <= bound).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("decay", [None, torch.tensor([0.0, -0.123])], ids=["kept", "decaying"])
def test_an_infinite_value_is_infinite_in_the_state(decay, dtype, kernel):
    k = torch.ones(1, 100, 2, 16, dtype=dtype)
    v = torch.ones(1, 100, 2, 16, dtype=dtype)
    v[0, 30, 0, 5], v[0, 70, 1, 3] = torch.inf, -torch.inf
    with thunderkittens.backend("simulator", kernel=kernel):
        _, state = thunderkittens.linear_attention(
            k, k, v, log_decay=decay, output_final_state=True
        )
    assert (state[0, 0, :, 5] == torch.inf).all()
    assert (state[0, 1, :, 3] == -torch.inf).all()
    assert state.isfinite().sum() == 2 * 16 * 15


@pytest.mark.parametrize("packed", [False, True], ids=["whole", "packed"])
@pytest.mark.parametrize("kind", long_sequences.DECAYS)
def test_gradients_of_decays_over_long_sequences(kind, packed, kernel):
    long_sequences.check(kind, 4096, 2, packed, kernel, "cpu")


@pytest.mark.parametrize("case", SOME, ids=str)
def test_policies_agree(case, kernel):
    inputs = cases.make(case)
    check_policies_agree(lambda: cases.run_case(case, inputs), kernel=kernel)


@needs_race_mode
@pytest.mark.parametrize("case", SOME, ids=str)
def test_no_races(case, kernel):
    inputs = cases.make(case)
    check_no_races(lambda: cases.run_case(case, inputs), kernel=kernel)


@pytest.mark.parametrize("width", [64, 128])
def test_no_bank_conflicts(width, kernel, tmp_path):
    """Of copies, products and the output's way, and at the tensors' ends; of all three roles."""
    # The shortest whose segments take the states of parts.
    length = 1070 if kernel is None and width == 128 else 558
    case = Case(length=length, heads=1, key_heads=1, key_width=width, value_width=width)
    facts = tmp_path / "facts.json"
    with thunderkittens.backend("simulator", kernel=kernel, facts=facts):
        cases.run_case(case, cases.make(case))
    launches = json.loads(facts.read_text())["launches"]
    name = "linear_attention_generic" if kernel else "linear_attention_chunkwise"
    assert {each["kernel"] for each in launches} == {name, "linear_attention_decay_gradient"}
    for each in launches:
        assert each["total"]["wavefronts"] == each["total"]["passes"] > 0
    assert len(launches) == 8  # two of the forward, five of the backward, and the decays' gradient


@pytest.mark.parametrize("which", range(5))
def test_gradient_of_one_input_alone(which):
    """What is not needed is not launched, and what the others give is the same.

    The decays need dq and dk; the state's gradient comes with dv, or with dk, rounded elsewhere.
    """
    case = Case(1, 70, 2, 1, 16, 24)
    inputs = cases.make(case)
    with thunderkittens.backend("simulator"):
        want = cases.run_case(case, inputs)[2 + which]
        given = [t.clone().requires_grad_(i == which) for i, t in enumerate(inputs[:5])]
        q, k, v, decay, initial = given
        outputs = thunderkittens.linear_attention(
            q, k, v, log_decay=decay, initial_state=initial, output_final_state=True
        )
        before = launches()
        (got,) = torch.autograd.grad(outputs, given[which], inputs[5:])
    assert launches() == before + (2 if which == 3 else 1)
    if which == 4:
        torch.testing.assert_close(got, want, rtol=0.02, atol=0.02 * want.abs().max().item())
    else:
        assert torch.equal(got, want)


def test_not_finite_stays_in_its_head_and_comes_no_earlier(kernel):
    """A NaN spoils its head from its token on: not what came before, not other heads."""
    case = Case(1, 200, 2, 2, 16, 16, BF16, states=False)
    q, k, v, decay, *_ = cases.make(case)
    k[0, 100, 1, 3] = float("nan")
    with thunderkittens.backend("simulator", kernel=kernel):
        o = thunderkittens.linear_attention(q, k, v, log_decay=decay)
    assert o[0, :, 0].isfinite().all()
    assert o[0, 100:, 1].isnan().all()
    assert o[0, :64, 1].isfinite().all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    ("case", "which"),
    [*((apart.APART, which) for which in apart.SPOILED), (apart.OF_SEGMENTS, 1)],
    ids=str,
)
def test_not_finite_stays_in_its_sequence(case, which, value, kernel):
    with thunderkittens.backend("simulator", kernel=kernel):
        apart.check(case, which, lambda _: value)


def test_large_gradients_take_no_digits_from_other_sequences(kernel):
    """All are as near to float64 as their own size allows."""
    inputs = list(cases.make(apart.APART))
    inputs[5][:70] *= 2.0**60
    inputs[6][0] *= 2.0**60
    with thunderkittens.backend("simulator", kernel=kernel):
        results = cases.run_case(apart.APART, inputs)
        apart.check(apart.APART, 0, lambda x: x * 2.0**60, apart.GRADIENTS)
    cases.check_case(apart.APART, inputs, results)


def test_one_packed_token_of_any_stride(kernel):
    """TMA takes the token's stride for that of rows, though there is one row."""
    q = torch.randn(4, 67).to(BF16).as_strided((1, 2, 16), (67, 16, 1))
    decay, ends = torch.zeros(2), torch.tensor([0, 1])
    with thunderkittens.backend("simulator", kernel=kernel):
        results = []
        for given in (q, q.contiguous()):
            leaf = given.detach().requires_grad_()
            o = thunderkittens.linear_attention(leaf, leaf, leaf, log_decay=decay, cu_seqlens=ends)
            results.append((o, *torch.autograd.grad(o, leaf, torch.ones_like(o))))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_more_sequences_than_a_grid_has_blocks(monkeypatch):
    """Of packed sequences it is their number that counts: here all but one have no token."""
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    q = torch.randn(1, 64, 16).to(BF16)
    ends = torch.zeros(1, dtype=torch.int32).expand(2**26)
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("linear_attention", q, q, q, cu_seqlens=ends)
    assert found.backend == "torch"
    assert "67108863 sequences of 64 heads of 1 tokens are too many" in str(found)


def test_explain(monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    q = torch.randn(1, 5, 2, 16).to(BF16)
    stepped = cases.lay_out(q, "stepped")
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("linear_attention", q, q, q)
        copied = thunderkittens.explain("linear_attention", q, stepped, q)
        wide = thunderkittens.explain("linear_attention", *[torch.randn(1, 5, 1, 136).to(BF16)] * 3)
    assert (found.backend, found.notes) == ("simulator", ())
    assert "k is copied first: the elements of a row are not neighbours" in str(copied)
    assert wide.backend == "torch"
    assert "head dimension 136 is not one of 8, 16 … 128" in str(wide)


def test_explain_says_which_kernel():
    q = torch.randn(1, 5, 2, 16).to(BF16)
    with thunderkittens.backend("simulator"):
        specialised = thunderkittens.explain("linear_attention", q, q, q)
    with thunderkittens.backend("simulator", kernel="generic"):
        generic = thunderkittens.explain("linear_attention", q, q, q)
    assert specialised.reason == "backend('simulator') is active"
    assert generic.reason == "backend('simulator') is active; it is the generic kernel"
