"""The kernels under demos/serve, in the simulator: pages, chunks, rows that come and go."""

import random

import pytest

pytest.importorskip("prometheus_client")

from batch import Batch
from engine import Engine
from request import Request
from served import check_likeliest, in_bfloat16

import thunderkittens


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("policy", ["eager", "lazy", "random"])
def test_tokens_over_pages_are_the_likeliest(policy, narrow):
    try:
        backend = thunderkittens.backend("simulator", policy=policy)
        with backend:
            pass
    except RuntimeError as error:
        pytest.skip(str(error))
    rng, made = random.Random(1), in_bfloat16()
    engine, asked = Engine(Batch(made, 3, 60, 16, 7, narrow=narrow), 100, (), chunk=13, lag=1), []
    for length, limit in ((30, 3), (1, 6), (17, 8), (15, 3)):
        tokens = []
        prompt = [rng.randrange(101) for _ in range(length)]
        engine.submit(Request(prompt, limit, on_token=tokens.append))
        asked.append((prompt, limit, tokens))
    with backend:
        while engine.busy:
            engine.turn()
    for prompt, limit, tokens in asked:
        assert len(tokens) == limit
        check_likeliest(made, prompt, tokens, narrow)
