"""The model against GPT-2 written out again in float64, and its cache against itself."""

import dataclasses
import math

import pytest
import torch
from models.gpt2 import (
    GPT2,
    THUNDERKITTENS_OPS,
    TORCH_OPS,
    TRAINING_OPS,
    KVCache,
    generate,
    sample,
)

# A logit, of size 1, is in fp32 the end of some 1000 additions in a row (ten sums of about 100
# terms): 1000 × 6e-8, rounded up.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
ALL_OPS = [THUNDERKITTENS_OPS, TRAINING_OPS, TORCH_OPS]


def reference_logits(state: dict, config, tokens: torch.Tensor) -> torch.Tensor:
    """GPT-2 as its paper and checkpoints define it, in float64, from the tensors by name."""
    w = {name.removeprefix("transformer."): value.double() for name, value in state.items()}

    def norm(x, name):
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + config.layer_norm_epsilon).sqrt()
        return centred / scale * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x, name):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    length, width = tokens.size(1), config.n_embd // config.n_head
    x = w["wte.weight"][tokens] + w["wpe.weight"][:length]
    hidden_keys = torch.ones(length, length).triu(1).bool()
    for layer in range(config.n_layer):
        mixed = linear(norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn.c_attn")
        heads = []
        for head in range(config.n_head):
            part = slice(head * width, (head + 1) * width)
            q, k, v = (m[..., part] for m in mixed.split(config.n_embd, dim=-1))
            scores = (q @ k.mT / math.sqrt(width)).masked_fill(hidden_keys, -torch.inf)
            heads.append(scores.softmax(-1) @ v)
        x = x + linear(torch.cat(heads, -1), f"h.{layer}.attn.c_proj")
        y = linear(norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc")
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        x = x + linear(y, f"h.{layer}.mlp.c_proj")
    return norm(x, "ln_f") @ w.get("lm_head.weight", w["wte.weight"]).T


def random_tokens(config, batch, length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(config.vocab_size, (batch, length), generator=generator)


@pytest.mark.parametrize("ops", ALL_OPS, ids=["thunderkittens", "training", "torch"])
@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_logits_equal_the_formula(tiny_model, ops, tied):
    config = dataclasses.replace(tiny_model.config, tie_word_embeddings=tied, n_inner=96)
    model = GPT2(config, ops).eval()
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.normal_(0.0, 0.2, generator=generator)
    tokens = random_tokens(config, 3, 17)
    expected = reference_logits(model.state_dict(), config, tokens)
    torch.testing.assert_close(model(tokens).double(), expected, **CLOSE)


@torch.no_grad()
def test_logits_equal_transformers(tiny_model):
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed (requirements/test.txt)"
    )
    keys = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")
    sizes = {key: getattr(tiny_model.config, key) for key in keys}
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    missing, unexpected = theirs.load_state_dict(tiny_model.state_dict(), strict=False)
    assert missing == ["lm_head.weight"] and not unexpected
    theirs.tie_weights()
    tokens = random_tokens(tiny_model.config, 2, 21)
    torch.testing.assert_close(tiny_model(tokens), theirs(tokens).logits, **CLOSE)


@pytest.mark.parametrize("ops", [THUNDERKITTENS_OPS, TORCH_OPS], ids=["thunderkittens", "torch"])
@pytest.mark.parametrize("prompt", [1, 2, 7, 16, 47, 48])
@torch.no_grad()
def test_cached_decode_equals_the_full_forward(tiny_model, ops, prompt):
    config = tiny_model.config
    model = GPT2(config, ops).eval()
    model.load_state_dict(tiny_model.state_dict())
    tokens = random_tokens(config, 2, config.n_positions, seed=prompt)
    full = model(tokens)
    cache = KVCache(config, 2, torch.float32, torch.device("cpu"))
    pieces = [model(tokens[:, :prompt], cache)]
    pieces += [model(tokens[:, i : i + 1], cache) for i in range(prompt, tokens.size(1))]
    assert cache.length == config.n_positions
    torch.testing.assert_close(torch.cat(pieces, 1), full[:, prompt - 1 :], **CLOSE)


@torch.no_grad()
def test_a_prompt_in_pieces_equals_the_full_forward(tiny_model):
    for ops in (THUNDERKITTENS_OPS, TORCH_OPS):
        model = GPT2(tiny_model.config, ops).eval()
        model.load_state_dict(tiny_model.state_dict())
        tokens = random_tokens(model.config, 1, 20)
        cache = KVCache(model.config, 1, torch.float32, torch.device("cpu"))
        model(tokens[:, :5], cache)
        torch.testing.assert_close(
            model(tokens[:, 5:], cache)[:, -1], model(tokens)[:, -1], **CLOSE
        )


@torch.no_grad()
def test_the_cache_never_shows_what_is_past_its_length(tiny_model):
    tokens = random_tokens(tiny_model.config, 1, 9)
    cache = KVCache(tiny_model.config, 1, torch.float32, torch.device("cpu"))
    cache.keys.fill_(torch.nan)
    cache.values.fill_(torch.nan)
    assert torch.isfinite(tiny_model(tokens, cache)).all()


def test_generate_is_greedy_argmax_and_goes_past_the_last_position(tiny_model):
    positions = tiny_model.config.n_positions
    text = random_tokens(tiny_model.config, 1, 3)[0].tolist()
    count = 2 * positions
    stream = generate(tiny_model, text)
    for _, (token, logits) in zip(range(count), stream, strict=False):
        assert token == int(logits.argmax())
        if len(text) <= positions:
            with torch.no_grad():
                full = tiny_model(torch.tensor([text]))[0, -1]
            torch.testing.assert_close(logits, full, **CLOSE)
        text.append(token)
    assert len(text) == count + 3


def test_generate_takes_a_prompt_longer_than_the_positions(tiny_model):
    prompt = random_tokens(tiny_model.config, 1, 200)[0].tolist()
    token, logits = next(generate(tiny_model, prompt))
    expected, _ = next(generate(tiny_model, prompt[-tiny_model.config.n_positions // 2 :]))
    assert token == expected and torch.isfinite(logits).all()


def test_sample_keeps_the_top_k_and_its_seed():
    logits = torch.tensor([0.0, 3.0, 2.9, -1.0, 2.8])
    draws = [
        [sample(logits, 1.0, 2, generator) for _ in range(64)]
        for generator in (torch.Generator().manual_seed(seed) for seed in (5, 5, 6))
    ]
    assert set(draws[0]) == {1, 2} and draws[0] == draws[1] != draws[2]
    assert sample(logits, 0.0, 0, torch.Generator()) == 1
    assert sample(logits * 1e4, 1e-3, 0, torch.Generator()) == 1  # no overflow


def test_the_initial_loss_is_that_of_a_uniform_guess(tiny_config):
    model = GPT2(tiny_config)
    model.initialize(torch.Generator().manual_seed(0))
    tokens, targets = random_tokens(tiny_config, 4, 32), random_tokens(tiny_config, 4, 32, seed=1)
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
    assert abs(float(loss) - math.log(tiny_config.vocab_size)) < 0.3


def test_training_takes_q_k_and_v_as_they_lie(tiny_config):
    """One tensor, and one gradient of it: no op puts three together, and no bit is another."""
    tokens = random_tokens(tiny_config, 2, 9)
    found = []
    for ops in (TRAINING_OPS, TRAINING_OPS._replace(attention_qkvpacked=None)):
        model = GPT2(tiny_config, ops)
        model.initialize(torch.Generator().manual_seed(0))
        loss = model(tokens).square().mean()
        found.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    assert all(map(torch.equal, *found))
    called = []

    def attention_qkvpacked(qkv, *, causal):
        called.append((qkv.shape, causal))
        return qkv[:, :, 2]

    model = GPT2(tiny_config, TRAINING_OPS._replace(attention_qkvpacked=attention_qkvpacked))
    model(tokens)
    heads = (tiny_config.n_head, tiny_config.n_embd // tiny_config.n_head)
    assert called == [((2, 9, 3, *heads), True)] * tiny_config.n_layer


def test_dropout_of_training_is_that_of_the_plain_model(tiny_config):
    """Each thing that is added to the stream is dropped once, by its own share, in training."""
    config = dataclasses.replace(tiny_config, embd_pdrop=0.1, resid_pdrop=0.3)
    plain, training = (GPT2(config, ops) for ops in (THUNDERKITTENS_OPS, TRAINING_OPS))
    norms = [norm for block in training.transformer.h for norm in (block.ln_1, block.ln_2)]
    norms.append(training.transformer.ln_f)
    assert [norm.dropout_p for norm in norms] == [0.0, *[0.3] * (2 * config.n_layer)]
    dropped = [m.p for m in plain.modules() if isinstance(m, torch.nn.Dropout)]
    assert sorted(dropped) == [0.1, *[0.3] * (config.n_layer + 1)]
    with torch.no_grad():
        plain.initialize(torch.Generator().manual_seed(0))
        training.load_state_dict(plain.state_dict())
        for model in (plain, training):
            model.eval()
        tokens = random_tokens(config, 2, 9)
        torch.testing.assert_close(training(tokens), plain(tokens), **CLOSE)
        assert not training.train()(tokens).equal(training(tokens))
