"""quantized_linear's kernels, lane by lane on the CPU: the list of cases, orders and races."""

import dataclasses

import pytest
import torch

import thunderkittens
from tests.families.linear import quantized_cases as cases
from tests.families.linear.cases import BF16, FP16
from tests.families.linear.quantized_cases import E4M3, QuantizedCase
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C
from thunderkittens.testing import check_memory, memory

pytestmark = needs_simulator

PLAIN = [
    QuantizedCase((3,), 1040, 300, bias=True, residual=True, norm=1e-6),
    QuantizedCase((11,), 1056, 88, 96, zero=True, activation="swiglu"),
]
SOME = [*PLAIN, *(dataclasses.replace(case, constant=True) for case in PLAIN)]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", cases.every(), ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = cases.make(case)
    before = _C.launch_counts()["quantized_linear"]

    def run(x, weight, *others):
        weight = weight if case.group else weight.view(E4M3)
        return cases.run_case(case, (x, weight, *others))

    with thunderkittens.backend("simulator"):
        results = check_memory(run, inputs[0], inputs[1].view(torch.uint8), *inputs[2:])
    assert _C.launch_counts()["quantized_linear"] == before + 2
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_policies_agree(case):
    inputs = cases.make(case)
    check_policies_agree(lambda: cases.run_case(case, inputs))


@needs_race_mode
@pytest.mark.parametrize("case", SOME, ids=str)
def test_no_races(case):
    inputs = cases.make(case)
    check_no_races(lambda: cases.run_case(case, inputs))


@pytest.mark.parametrize("case", [c for c in SOME if c.constant], ids=str)
def test_a_constant_weight_changes_no_bit(case):
    inputs = cases.make(case)
    with thunderkittens.backend("simulator"):
        (y,), (want,) = (
            cases.run_case(dataclasses.replace(case, constant=constant), inputs)
            for constant in (True, False)
        )
    assert memory.bits_equal(y, want)


def written(shape: tuple[int, ...], dtype: torch.dtype, view: torch.dtype) -> torch.Tensor:
    """A tensor that the last kernel has written: any bits, as another dtype."""
    rows, width = shape[0], shape[1] * view.itemsize // dtype.itemsize
    x, weight = torch.randn(rows, 64).to(dtype), torch.randn(width, 64).to(dtype)
    return thunderkittens.linear(x, weight).view(view)


@needs_race_mode
@pytest.mark.parametrize("part", ["weight", "scale", "zero"])
def test_race_mode_sees_a_promise_that_is_broken(part):
    with thunderkittens.backend("simulator", race=True):
        given = {
            "x": torch.randn(2, 64).bfloat16(),
            "weight": torch.zeros(16, 32, dtype=torch.uint8),
            "scale": torch.ones(16, 2, dtype=BF16),
            "zero": torch.zeros(16, 2, dtype=torch.uint8),
        }
        given[part] = written(tuple(given[part].shape), BF16, given[part].dtype)
        number = ("weight", "scale", "zero").index(part)
        with pytest.raises(RuntimeError, match=rf"RACE: .*constant\[{number}\], \d+ bytes, is wri"):
            thunderkittens.quantized_linear(**given, weight_is_constant=True)


@needs_race_mode
def test_a_scale_that_is_copied_is_not_taken_for_constant():
    """Nor is the weight then, and the same of a zero."""
    x = torch.randn(2, 64).bfloat16()
    scale, zero = torch.ones(16, 4, dtype=BF16), torch.zeros(16, 4, dtype=torch.uint8)
    with thunderkittens.backend("simulator", race=True):
        for change in ({"scale": scale[:, ::2]}, {"zero": zero[:, ::2]}):
            given = {"scale": scale[:, :2].contiguous(), "zero": zero[:, :2].contiguous()} | change
            weight = written((16, 32), BF16, torch.uint8)
            thunderkittens.quantized_linear(x, weight, **given, weight_is_constant=True)


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_every_code_of_e4m3_is_its_number(dtype):
    """Exactly, subnormal numbers and NaN too: y of a unit vector is a column."""
    weight = torch.arange(256, dtype=torch.uint8).view(256, 1).expand(256, 16).contiguous()
    x = torch.zeros(1, 16, dtype=dtype)
    x[0, 5] = 1
    with thunderkittens.backend("simulator"):
        y = thunderkittens.quantized_linear(x, weight.view(E4M3), torch.ones(256))
    want = weight.view(E4M3)[:, 5].to(dtype)
    torch.testing.assert_close(y[0], want, rtol=0, atol=0, equal_nan=True)
    assert int(want.isnan().sum()) == 2


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_int4_has_the_bits_of_its_dequantized_weight(dtype):
    case = QuantizedCase((4,), 256, 40, 32, dtype, zero=True)
    _, weight, scale, zero, *_ = cases.make(case)
    unit = torch.eye(16, 256, dtype=dtype)
    with thunderkittens.backend("simulator"):
        y = thunderkittens.quantized_linear(unit, weight, scale, zero)
    want = thunderkittens.dequantize_weight(weight, scale, zero)[:, :16].T.contiguous()
    assert memory.bits_equal(y + 0, want + 0)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (QuantizedCase((2,), 24, 4), "a quantized weight of 24 columns, not a multiple of 16"),
        (QuantizedCase((2,), 96, 4, 48), "groups of 48 columns, not a multiple of 32"),
        (QuantizedCase((2,), 64, 4, dtype=FP16, norm=1e-6), "float16, whose products with the"),
    ],
)
def test_fallbacks_say_why(case, message):
    inputs = cases.make(case)
    with (
        thunderkittens.backend("simulator"),
        pytest.raises(RuntimeError, match=f"quantized_linear: computed by torch: {message}"),
    ):
        cases.run_case(case, inputs)
