"""AdamW's kernels, lane by lane on the CPU: the list of test_adamw.py."""

import pytest
import torch

import thunderkittens
from tests.families.adamw import cases
from tests.families.adamw.cases import BF16, FP16, FP32, Case
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C
from thunderkittens.testing import memory

pytestmark = needs_simulator

ORDERED = [
    Case((2049, 8, 1031, 4100, 6151, 5, 5, 5, 9000), norm="skip"),
    Case((5000, 0, 8), BF16, BF16, stochastic=True, step=3),
    Case((5000, 7), FP16, FP32, master=True, norm="skip_nan", layout="offset"),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def run(case: Case, inputs) -> list[torch.Tensor]:
    return cases.run_case(case, inputs)


@pytest.mark.parametrize("case", cases.all_cases(), ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours."""
    inputs = cases.make(case)
    before = _C.launch_counts()["adamw_update"]
    with thunderkittens.backend("simulator"):
        results = cases.run_between_guards(case, inputs)
    calls = len(case.sizes) if case.single else -(-len(case.sizes) // 192)
    assert _C.launch_counts()["adamw_update"] == before + 2 * calls
    cases.check_case(case, inputs, results)


def test_random_numbers():
    with thunderkittens.backend("simulator"):
        cases.check_random_numbers("cpu")


@pytest.mark.parametrize("case", cases.random_cases(), ids=str)
def test_torch_draws_the_same_numbers(case):
    """Where float32 arithmetic of both has the same bits, and so almost everywhere."""
    inputs = cases.make(case)
    with thunderkittens.backend("simulator"):
        ours = run(case, inputs)
    with thunderkittens.backend("torch"):
        torchs = run(case, inputs)
    for got, want in zip(ours, torchs, strict=True):
        if got.dtype == BF16:
            assert float((got == want).float().mean()) > 0.99


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
@pytest.mark.parametrize("sizes", [(1,), (5, 0, 3), cases.SIZES, tuple(range(1, 200))], ids=str)
def test_norm(sizes, dtype):
    with thunderkittens.backend("simulator"):
        cases.check_norm(sizes, (dtype,), "cpu")


def test_norm_of_several_dtypes_and_any_strides():
    with thunderkittens.backend("simulator"):
        cases.check_norm((100, 2049, 7, 8, 3000), (FP32, BF16, FP16), "cpu")
        x = torch.randn(40, 40)
        norm = torch.ops.thunderkittens.adamw_grad_norm
        assert float(norm([x.t(), x[:, ::2]])) == pytest.approx(
            float((x.square().sum() + x[:, ::2].square().sum()).sqrt()), rel=1e-5
        )
        assert float(norm([torch.ones(3), torch.tensor([torch.inf])])) == torch.inf
        assert torch.isnan(norm([torch.tensor([torch.nan]), torch.ones(9000)]))
        assert float(norm([torch.zeros(0)])) == 0


def test_norm_is_the_same_in_any_order():
    grads = [torch.randn(size) for size in (9000, 5, 4100)]
    check_policies_agree(lambda: [torch.ops.thunderkittens.adamw_grad_norm(grads)])


@pytest.mark.parametrize("case", ORDERED, ids=str)
def test_policies_agree(case):
    inputs = cases.make(case)
    check_policies_agree(lambda: run(case, inputs))


@needs_race_mode
@pytest.mark.parametrize("case", ORDERED, ids=str)
def test_no_races(case):
    inputs = cases.make(case)
    check_no_races(lambda: run(case, inputs))
    check_no_races(lambda: [torch.ops.thunderkittens.adamw_grad_norm(inputs[:1] * 3)])


def test_a_launch_for_each_dtype():
    """Mixed lists: what one kernel takes is one launch, and a skipped step is counted once."""
    kinds = [Case((300, 9), t, m, norm="skip_nan") for t in (FP32, BF16) for m in (FP32, BF16)]
    lists: list[list[torch.Tensor]] = [[], [], [], []]
    for case in kinds:
        *tensors, norm = cases.make(case)
        for i in range(4):
            lists[i] += tensors[i::4]
    before = [t.clone() for t in lists[1]]
    steps = [torch.zeros(()) for _ in lists[0]]
    skipped = torch.zeros((), dtype=torch.int32)
    launches = _C.launch_counts()["adamw_update"]
    with thunderkittens.backend("simulator"):
        torch.ops.thunderkittens.adamw_foreach(
            *lists,
            [],
            steps,
            None,
            norm,
            skipped,
            list(range(len(steps))),
            **cases.options_of(kinds[0]),
        )
    assert _C.launch_counts()["adamw_update"] == launches + 4
    assert int(skipped) == 1
    assert all(map(memory.bits_equal, lists[1], before))
    assert not any(steps)


def test_learning_rate_on_the_device():
    case = Case()
    inputs = cases.make(case)
    with thunderkittens.backend("simulator"):
        want = run(case, inputs)
        *tensors, _ = cases.copied(case, inputs)[0]
        lists = [list(tensors[i::4]) for i in range(4)]
        steps = [torch.zeros(()) for _ in case.sizes]
        options = cases.options_of(case) | {"lr": 0.0}
        rate = torch.tensor(cases.LR)
        torch.ops.thunderkittens.adamw_foreach(
            *lists, [], steps, rate, None, None, [0] * 3, **options
        )
    assert all(map(memory.bits_equal, tensors, want))


def test_explain():
    p = torch.zeros(4, 6)
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("adamw", p, p.clone(), p.clone(), p.clone(), step=1)
    assert found.backend == "simulator"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": torch.float64}, "float64 is computed by torch"),
        ({"strides": (12, 2)}, "parameters that are not dense"),
        ({"dtype": FP16, "stochastic_rounding": True}, "stochastic rounding of float16"),
    ],
    ids=str,
)
def test_what_torch_computes(change, reason):
    options = dict(change)
    p = torch.zeros(4, 12, dtype=options.pop("dtype", FP32)).as_strided(
        (4, 6), options.pop("strides", (6, 1))
    )
    moments = [torch.zeros(4, 6, dtype=FP32 if p.dtype == FP16 else p.dtype) for _ in "mv"]
    with (
        thunderkittens.backend("simulator"),
        pytest.raises(RuntimeError, match=f"adamw: computed by torch: {reason}"),
    ):
        thunderkittens.adamw(torch.ones_like(p), p, *moments, step=1, **options)


def test_sizes_and_tensors_must_be_as_many():
    with pytest.raises(ValueError, match=r"adamw_foreach: grads must have 1 tensors \(as params\)"):
        torch.ops.thunderkittens.adamw_foreach(
            [], [torch.ones(3)], [], [], [], [], None, None, None, [0], **cases.options_of(Case())
        )
