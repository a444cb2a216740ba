"""The bounds of mamba2's fuzz: what the op rounds on its way, they allow."""

import torch

import thunderkittens
from tests.families.mamba2 import cases, fuzz
from tests.fuzz import judge

FP16 = torch.float16
WIDE = cases.Case(
    length=27, heads=1, head_width=8, state_width=8, dtype=FP16, bias=False, states=False, d=2
)
STEP = 2.0**-24  # of float16, near zero


def inputs(x: float, dy: float):
    """Of which D's gradient is 27 times x dy."""
    given = list(cases.make(WIDE))
    given[0] = torch.full_like(given[0], x)
    given[5] = given[5].half()
    given[9] = torch.full_like(given[9], dy)
    return given


def test_products_of_the_gradient_of_d_are_rounded_before_they_are_added_up():
    """Each is a little above half a step, and becomes a whole one."""
    given = inputs(1.01 * 2.0**-12, 2.0**-13)
    got = dict(zip(cases.names(WIDE), cases.run_case(WIDE, given), strict=True))["dD"]
    each = fuzz.references(WIDE, given)["dD"]
    error = (got.double() - each.want).abs()
    assert (error > 27 * 0.9 * STEP / 2).all()
    assert (error > each.bound - 27 * STEP / 2).all()  # what roundings of larger numbers may do
    assert judge.right(got, each).all()


def test_a_gradient_of_d_without_a_token_is_wrong():
    given = inputs(1.0, 1.0)
    each = fuzz.references(WIDE, given)["dD"]
    right = torch.full((1, 8), 27.0, dtype=FP16)
    assert judge.right(right, each).all() and not judge.right(right - 1, each).any()


def test_in_float32_they_are_not_rounded_to_float16():
    given = inputs(1.01 * 2.0**-12, 2.0**-13)
    given[5] = given[5].float()
    each = fuzz.references(WIDE, given)["dD"]
    assert (each.bound < 2 * STEP).all()
    y = thunderkittens.mamba2(*given[:5], D=given[5].requires_grad_(), dt_softplus=True)
    (got,) = torch.autograd.grad(y, given[5], given[9])
    assert judge.right(got, each).all()
