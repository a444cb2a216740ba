"""Choosing tokens: what transformers' processors mean, and numbers that decide."""

import pytest
import torch
from models.sampling import (
    Candidates,
    RunningSums,
    Sampling,
    choose,
    choose_each,
    likeliest,
    uniforms,
)


def logits(rows=6, size=200):
    """Some rows with equals, as rounded logits have, also at the edges of top-k and top-p."""
    values = 3 * torch.randn(rows, size)
    values[rows // 2 :] = values[rows // 2 :].round()
    return values


def shares(scores, sampling):
    """How likely each token is taken, float64 [rows, size]: exactly, by its weight."""
    found = Candidates(scores, sampling)
    sums = found.weights.cumsum(-1)
    taken = sums.clamp(min=found.dropped[:, None])
    taken = taken.diff(dim=-1, prepend=found.dropped[:, None])
    if found.tokens is not None:
        taken = torch.zeros_like(taken).scatter(1, found.tokens, taken)
    return taken.double() / taken.sum(-1, keepdim=True)


def theirs(scores, sampling):
    transformers = pytest.importorskip("transformers")
    chain = [transformers.TemperatureLogitsWarper(sampling.temperature)]
    if sampling.top_k:
        chain.append(transformers.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        chain.append(transformers.TopPLogitsWarper(sampling.top_p))
    return transformers.LogitsProcessorList(chain)(None, scores)


@pytest.mark.parametrize("size", [200, 256, 700])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("top_k", [0, 1, 5, 50, 200, 300])
@pytest.mark.parametrize("top_p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_tokens_are_as_likely_as_by_transformers_processors(size, temperature, top_k, top_p):
    scores, sampling = logits(size=size), Sampling(temperature, top_k, top_p)
    expected = theirs(scores, sampling).double().softmax(-1)
    found = shares(scores, sampling)
    distinct = slice(0, 3)
    assert not found[distinct][expected[distinct] == 0].any()
    # A float32 is off by some 2^-24 of what it is subtracted from, at most 2^5 here.
    assert (found - expected)[distinct].abs().max() <= 2**-18
    # Of equals at the edge of top-p any may be dropped.
    assert (found.sort().values - expected.sort().values).abs().max() <= 2**-18


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_equals_at_the_edge_of_top_p(dtype):
    """Those that come first are dropped: a quarter of eight equals are two."""
    found = shares(torch.zeros(1, 8, dtype=dtype), Sampling(1.0, top_p=0.75))
    assert found.tolist() == [[0.0, 0.0, *[1 / 6] * 6]]


def test_top_p_counts_what_top_k_has_left():
    """0.4 and 0.3 of 1 are 4/7 and 3/7 of two: half of that is the first alone."""
    scores = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    kept = shares(scores, Sampling(1.0, top_k=2, top_p=0.5)) > 0
    assert kept.tolist() == [[True, False, False, False]]
    kept = shares(scores, Sampling(1.0, top_p=0.5)) > 0
    assert kept.tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("size", [20, 600])
def test_tokens_come_as_often_as_they_are_likely(size):
    """Numbers at equal distances: each token has as many as it is likely, but for its two ends."""
    scores, count = logits(1, size), 4000
    grid = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    for sampling in (Sampling(1.0), Sampling(0.7, top_k=6), Sampling(1.5, top_k=9, top_p=0.8)):
        tokens = choose(scores.expand(count, -1), sampling, grid)
        share = tokens.bincount(minlength=size) / count
        expected = shares(scores, sampling)[0]
        assert (share - expected).abs().max() <= 1 / count + 1e-6
        assert not share[expected == 0].any()


@pytest.mark.parametrize("size", [1, 255, 256, 257, 1000])
def test_running_sums_are_those_of_cumsum(size):
    """At every bound that a sum stands at, and beside it."""
    values = torch.randint(0, 3, (1, size)) << 50
    values[0, -1] += 1  # a total above 0
    sums = values.cumsum(-1)[0]
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), sums, sums - 1, sums + 1])
    bounds = bounds[(bounds >= 0) & (bounds < sums[-1])]
    at, before = RunningSums(values.expand(len(bounds), -1)).first_above(bounds)
    assert torch.equal(at, torch.searchsorted(sums, bounds, right=True))
    assert torch.equal(before, sums[at] - values[0, at])
    nothing = torch.zeros(2, size, dtype=torch.int64)
    at, _ = RunningSums(nothing).first_above(torch.tensor([0, 5]))
    assert ((at >= 0) & (at < size)).all()


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_the_ends_of_the_numbers_take_tokens_that_are_kept(uniform):
    scores, sampling = logits(), Sampling(1.0, top_k=3, top_p=0.9)
    tokens = choose(scores, sampling, torch.full((6,), uniform, dtype=torch.float64))
    assert (shares(scores, sampling).gather(1, tokens[:, None]) > 0).all()


def test_temperature_0_is_the_likeliest():
    nothing = torch.full((6,), torch.nan, dtype=torch.float64)
    for size in (1, 200, 256, 1000):
        scores = logits(size=size)
        assert torch.equal(choose(scores, Sampling(), nothing), scores.argmax(-1))


def test_the_likeliest_is_the_first_of_equals():
    scores = torch.zeros(2, 700)
    scores[0, [300, 301, 690]] = 1.0
    assert likeliest(scores).tolist() == [300, 0]


def test_numbers_of_a_row_are_a_seeds_of_its_own():
    numbers = uniforms(50, 3, seed=7)
    assert numbers.shape == (50, 3) and numbers.dtype == torch.float64
    assert torch.equal(numbers[:, 2], uniforms(50, 1, seed=9)[:, 0])
    assert not torch.equal(numbers[:, 0], numbers[:, 1])
    assert 0 <= numbers.min() and numbers.max() < 1


def test_rows_with_samplings_of_their_own():
    scores = logits()
    kinds = [Sampling(), Sampling(1.0), Sampling(0.7, 20, 0.9)]
    uniform = uniforms(1, 6, 3)[0]
    for samplings in (kinds * 2, kinds[1:2] * 6, [kinds[2], *kinds[:1] * 5]):
        one_by_one = [
            choose(scores[row : row + 1], sampling, uniform[row : row + 1])
            for row, sampling in enumerate(samplings)
        ]
        assert torch.equal(choose_each(scores, samplings, uniform), torch.cat(one_by_one))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_not_finite_give_a_token_all_the_same(value):
    scores = logits()
    scores[:4, ::3] = value
    scores[0] = value
    for kind in (Sampling(), Sampling(1.0), Sampling(0.7, 20, 0.9)):
        chosen = choose_each(scores, [kind] * 6, uniforms(1, 6, 3)[0])
        assert ((chosen >= 0) & (chosen < 200)).all()
        assert torch.equal(chosen[4:], choose(scores, kind, uniforms(1, 6, 3)[0])[4:])
