"""mamba2's kernels, lane by lane on the CPU: the list of test_mamba2.py."""

import pytest
import torch

import thunderkittens
from tests.families.mamba2 import cases, long_sequences
from tests.families.mamba2.cases import BF16, FP16, Case
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = needs_simulator

ALL = [
    *cases.lengths(),
    *cases.widths(),
    *cases.options(),
    *cases.layouts(),
    *cases.packed(),
    Case(dtype=FP16, dt_dtype=torch.float32),
    # Pairs of heads, which make their gates themselves.
    *(Case(batch=4, length=n, heads=16, groups=4) for n in (1, 63, 64, 65, 128, 320)),
    Case(batch=16, length=70, heads=4, head_width=16, state_width=32, z=True),
    # Segments: fewer heads than multiprocessors, and chunks for several.
    Case(length=1030, heads=1),
    Case(length=1230, heads=2, steps=-4.0),
    Case(length=1090, heads=2, head_width=128, state_width=128, dtype=FP16),
]
SOME = [
    Case(length=200, z=True),
    Case(length=100, head_width=128, state_width=128),
    Case(length=1030, heads=1, head_width=16, state_width=16),
    Case(length=1100, heads=2, head_width=16, state_width=16),  # segments of pairs
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(params=[None, "generic"], ids=["specialised", "generic"])
def kernel(request) -> str | None:
    """Of linear attention; mamba2's own are generic."""
    return request.param


def launches() -> int:
    """Of linear attention's kernel."""
    return _C.launch_counts()["linear_attention"]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case, kernel):
    """Right, within its tensors, and the same bits with other neighbours; by our kernels."""
    inputs = cases.make(case)
    before = launches()
    with thunderkittens.backend("simulator", kernel=kernel):
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert launches() >= before + 2 * 4
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("dt_dtype", [BF16, torch.float32], ids=["bf16", "fp32"])
def test_pairs_of_heads_make_their_gates(dt_dtype):
    """The same bits as behind a launch of gates, which dt that is not in words still needs."""
    case = Case(batch=4, length=130, heads=16, groups=4, dt_dtype=dt_dtype)
    x, dt, A, B, C, D, z, bias, initial, *_ = cases.make(case)
    apart = dt.new_zeros(*dt.shape[:2], dt.shape[2] + 1)[..., 1:].copy_(dt)  # odd strides
    options = cases.keywords(case, D, z, bias, initial)
    with thunderkittens.backend("simulator"):
        results = [thunderkittens.mamba2(x, each, A, B, C, **options) for each in (dt, apart)]
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


STRIDES_OF_DT = {
    "tokens_side_by_side": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "batches_side_by_side": lambda t: t.permute(1, 2, 0).contiguous().permute(2, 0, 1),
    "every_third": lambda t: t.new_zeros(*t.shape, 3).copy_(t[..., None])[..., 1],
    "one_batch": lambda t: t[:1].expand_as(t),
    "one_token": lambda t: t[:, :1].expand_as(t),
    "one_head": lambda t: t[:, :, :1].expand_as(t),
    "one_number": lambda t: t[:1, :1, :1].expand_as(t),
}


@pytest.mark.parametrize("strides", STRIDES_OF_DT.values(), ids=STRIDES_OF_DT)
@pytest.mark.parametrize("dtype", [BF16, FP16, torch.float32], ids=["bf16", "fp16", "fp32"])
def test_gates_of_any_strides(dtype, strides):
    """Whole tiles of tokens and heads, and a rest of both: the same bits as of contiguous dt."""
    case = Case(2, 300, 11, 1, 8, 8, FP16 if dtype == FP16 else BF16, dtype)
    x, dt, A, B, C, D, z, bias, initial, *_ = cases.make(case)
    dt = strides(dt)
    options = cases.keywords(case, D, z, bias, initial)
    with thunderkittens.backend("simulator"):
        results = [
            thunderkittens.mamba2(x, each, A, B, C, **options) for each in (dt, dt.contiguous())
        ]
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("far", range(3), ids=["batch", "token", "head"])
def test_gates_of_dt_beyond_2_to_the_31_elements(far):
    """Its second batch, token or head starts there, in memory that is never touched before."""
    case = Case(2, 2, 2, 1, 8, 8)
    x, dt, A, B, C, D, z, bias, initial, *_ = cases.make(case)
    strides = [4, 2, 1]
    strides[far] = 2**31
    apart = torch.empty(2**31 + 8, dtype=BF16).as_strided(dt.shape, strides).copy_(dt)
    options = cases.keywords(case, D, z, bias, initial)
    with thunderkittens.backend("simulator"):
        results = [thunderkittens.mamba2(x, each, A, B, C, **options) for each in (dt, apart)]
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("packed", [False, True], ids=["whole", "packed"])
@pytest.mark.parametrize("kind", long_sequences.KINDS)
def test_gradients_of_gates_over_long_sequences(kind, packed, kernel):
    long_sequences.check(kind, 4096, 4, packed, kernel, "cpu")


@pytest.mark.parametrize("case", SOME, ids=str)
def test_policies_agree(case, kernel):
    inputs = cases.make(case)
    check_policies_agree(lambda: cases.run_case(case, inputs), kernel=kernel)


@needs_race_mode
@pytest.mark.parametrize("case", SOME, ids=str)
def test_no_races(case, kernel):
    inputs = cases.make(case)
    check_no_races(lambda: cases.run_case(case, inputs), kernel=kernel)


@pytest.mark.parametrize("which", range(9), ids=cases.INPUTS)
def test_gradient_of_one_input_alone(which):
    """The kernels that are not needed are not launched, and what the others give is the same."""
    case = Case(1, 70, 2, 1, 16, 24, z=cases.INPUTS[which] == "z")
    inputs = cases.make(case)
    names = cases.names(case)
    count = 1 if cases.INPUTS[which] in ("D", "C", "z") else 2  # what the state depends on
    scans = {"x": 1, "B": 1, "C": 1, "D": 1, "z": 0, "initial_state": 1}.get(cases.INPUTS[which], 2)
    with thunderkittens.backend("simulator"):
        want = cases.run_case(case, inputs)[names.index(f"d{cases.INPUTS[which]}")]
        given = [
            None if t is None else t.clone().requires_grad_(i == which)
            for i, t in enumerate(inputs[:9])
        ]
        outputs = thunderkittens.mamba2(*given[:5], **cases.keywords(case, *given[5:]))
        before = launches()
        (got,) = torch.autograd.grad(outputs[:count], given[which], inputs[9 : 9 + count])
    assert launches() == before + scans
    assert torch.equal(got, want)


def test_steps_are_softplus():
    """To a rounding of y, also where they are small; what is not a number stays."""
    dt = torch.cat([torch.linspace(-80, 30, 500), torch.tensor([torch.nan, -torch.inf])])
    heads = dt.numel()
    x, B = torch.zeros(1, 1, heads, 8).to(BF16), torch.zeros(1, 1, 1, 8).to(BF16)
    x[..., 0] = B[..., 0] = 1
    with thunderkittens.backend("simulator"):
        y = thunderkittens.mamba2(x, dt.view(1, 1, -1), -torch.ones(heads), B, B, dt_softplus=True)
    want = torch.nn.functional.softplus(dt.double())
    close = {"rtol": 2.1 * 2**-9, "atol": 0.0, "equal_nan": True}  # the weight, and y
    torch.testing.assert_close(y[0, 0, :, 0].double(), want, **close)


def test_not_finite_stays_in_its_head_and_comes_no_earlier():
    """A NaN spoils its head from its token on: not what came before, not other heads."""
    case = Case(1, 200, 2, 2, 16, 16, states=False)
    x, dt, A, B, C, D, z, bias, initial, *_ = cases.make(case)
    dt[0, 100, 1] = float("nan")
    with thunderkittens.backend("simulator"):
        y = thunderkittens.mamba2(x, dt, A, B, C, **cases.keywords(case, D, z, bias, initial))
    assert y[0, :, 0].isfinite().all()
    assert y[0, 100:, 1].isnan().all()
    assert y[0, :64, 1].isfinite().all()


def test_explain(monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT")
    x, dt, A = torch.randn(1, 5, 2, 16).to(BF16), torch.randn(1, 5, 2), -torch.ones(2)
    B = torch.randn(1, 5, 2, 16).to(BF16)
    wide = torch.randn(1, 5, 1, 256).to(BF16)
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("mamba2", x, dt, A, B, B)
        copied = thunderkittens.explain("mamba2", x, dt, A, cases.lay_out(B, "stepped"), B)
        by_torch = thunderkittens.explain("mamba2", x, dt, A, wide, wide)
    assert (found.backend, found.notes) == ("simulator", ())
    assert "B is copied first: the elements of a row are not neighbours" in str(copied)
    assert by_torch.backend == "torch"
    assert "head dimension 256 is not one of 8, 16 … 128" in str(by_torch)
