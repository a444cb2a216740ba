"""Choosing tokens: what transformers' processors mean, and numbers that decide."""

import pytest
import torch
from models.sampling import Sampling, choose, choose_each, processed, uniforms


def logits(rows=6, size=200):
    """Some rows with equals, as rounded logits have, also at the edges of top-k and top-p."""
    values = 3 * torch.randn(rows, size)
    values[rows // 2 :] = values[rows // 2 :].round()
    return values


def theirs(scores, sampling):
    transformers = pytest.importorskip("transformers")
    chain = [transformers.TemperatureLogitsWarper(sampling.temperature)]
    if sampling.top_k:
        chain.append(transformers.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        chain.append(transformers.TopPLogitsWarper(sampling.top_p))
    return transformers.LogitsProcessorList(chain)(None, scores)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("top_k", [0, 1, 5, 50, 200, 300])
@pytest.mark.parametrize("top_p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_scores_are_those_of_transformers_processors(temperature, top_k, top_p):
    scores, sampling = logits(), Sampling(temperature, top_k, top_p)
    assert torch.equal(processed(scores, sampling), theirs(scores, sampling))


def test_top_p_counts_what_top_k_has_left():
    """0.4 and 0.3 of 1 are 4/7 and 3/7 of two: half of that is the first alone."""
    scores = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    kept = processed(scores, Sampling(1.0, top_k=2, top_p=0.5)).isfinite()
    assert kept.tolist() == [[True, False, False, False]]
    kept = processed(scores, Sampling(1.0, top_p=0.5)).isfinite()
    assert kept.tolist() == [[True, True, False, False]]


def test_tokens_come_as_often_as_they_are_likely():
    """Numbers at equal distances: each token has as many as it is likely, but for its two ends."""
    scores, count = logits(1, 20), 4000
    grid = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    for sampling in (Sampling(1.0), Sampling(0.7, top_k=6), Sampling(1.5, top_k=9, top_p=0.8)):
        tokens = choose(scores.expand(count, -1), sampling, grid)
        share = tokens.bincount(minlength=20) / count
        expected = processed(scores, sampling).softmax(-1)[0]
        assert (share - expected).abs().max() <= 1 / count + 1e-6
        assert not share[expected == 0].any()


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_the_ends_of_the_numbers_take_tokens_that_are_kept(uniform):
    scores, sampling = logits(), Sampling(1.0, top_k=3, top_p=0.9)
    tokens = choose(scores, sampling, torch.full((6,), uniform, dtype=torch.float64))
    assert processed(scores, sampling).gather(1, tokens[:, None]).isfinite().all()


def test_temperature_0_is_the_likeliest():
    scores = logits()
    nothing = torch.full((6,), torch.nan, dtype=torch.float64)
    assert torch.equal(choose(scores, Sampling(), nothing), scores.argmax(-1))


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
