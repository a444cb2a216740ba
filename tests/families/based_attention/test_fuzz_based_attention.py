"""The bounds of based_attention's fuzz: what arithmetic may do, they allow; done by hand."""

import math

import torch

import thunderkittens
from tests.families.based_attention import cases, fuzz, fuzz_step
from tests.fuzz import judge

# Keys that torch takes, of 561 features; the last token is the second chunk's only one.
WIDE = cases.Case(
    length=65, heads=1, key_width=32, value_width=8, dtype=torch.float32, states=False
)
Q, K, V = -2.3375678, -0.11009824, -1.4146


def constant() -> tuple:
    q, k = (torch.full((1, 65, 1, 32), x) for x in (Q, K))
    v = torch.full((1, 65, 1, 8), V)
    return q, k, v, None, None, torch.zeros_like(v), None, None


def in_a_row() -> torch.Tensor:
    """o of the last token: numerators and denominator, whose terms are added one by one."""
    of_q, of_k = (thunderkittens.based_features(torch.full((32,), x)) for x in (Q, K))
    values = torch.tensor([V, 1.0])
    state, sums = 64 * of_k[:, None] * values, torch.zeros(2)
    for feature, row in zip(of_q, state, strict=True):
        sums = sums + feature * row
    score = torch.tensor(Q * K * 32**0.5)
    sums = sums + (1 + score + score * score / 2) * values
    return (sums[0] / sums[1]).expand(8)


def test_equal_terms_of_many_features_are_added_up_in_a_row():
    got = in_a_row()
    each, if_unrelated = (
        judge.Judged(j.want[0, 64, 0], j.bound[0, 64, 0])
        for j in (fuzz.references(WIDE, constant(), equal)["o"] for equal in (True, False))
    )
    assert judge.right(got, each).all() and not judge.right(got, if_unrelated).any()
    # A denominator without one of its features, or a token; and what has 11 bits.
    for wrong in (got * (1 + 1 / 561), got * (1 - 1 / 65), got * (1 + 2.0**-11)):
        assert not judge.right(wrong, each).any()


def test_more_features_than_a_bound_counts():
    """Unrelated numbers, too, are sums of all of them."""
    torch.manual_seed(0)
    narrow = cases.Case(length=65, heads=1, value_width=8, dtype=torch.float32, states=False)
    bounds = []
    for case in (narrow, WIDE):
        given = cases.make(case)
        each = fuzz.references(case, given, False)["o"]
        _, sizes = cases.reference(case, given)
        bounds.append((each.bound / sizes[0]).mean())
    assert 1.1 * bounds[0] < bounds[1] < 2 * bounds[0]


# ---- A step --------------------------------------------------------------------------------------


def a_step(width: int) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    """Tensors in float64 of a step whose features are nearly all of what is taken from the sums;
    with features of k, and the sums behind it."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(64, 16, n, dtype=torch.float64) for n in (width, width, 4))
    features = thunderkittens.based_features(k)
    sums = -features * (1 + 0.02 * torch.randn_like(features))
    state = torch.randn(*features.shape, 4, dtype=torch.float64)
    given = {"q": q, "k": k, "v": v, "state": state, "sums": sums}
    after = sums.clone()
    thunderkittens.based_attention_step(q, k, v, (state.clone(), after))
    return given, features, after


def test_the_root_of_the_usual_scale_is_rounded_too():
    """1 / √7 and 7^-½ are neighbours, and so are their roots."""
    assert math.sqrt(1 / math.sqrt(7)) != (7**-0.5) ** 0.5
    given, features, after = a_step(7)
    each = fuzz_step.judged(given, 7**-0.5, 1e-12)["sums"]
    assert judge.right(after, each).all()
    of_one = slice(1, 8)  # 1 / √7, times an element
    if_exact = torch.finfo(torch.float64).eps * (features.abs() + after.abs())[..., of_one]
    assert ((after - each.want).abs()[..., of_one] > if_exact).any()


def test_sums_of_another_scale_are_wrong():
    given, _, after = a_step(7)
    each = fuzz_step.judged(given, 7**-0.5 * (1 + 1e-14), 1e-12)["sums"]
    assert not judge.right(after, each)[..., 1:].all()
    assert judge.right(after, each)[..., 0].all()
