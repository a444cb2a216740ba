"""Each mixer in its three forms, and what it remembers."""

import pytest
import torch
from models import mixers
from models.mixers import MIXERS, MixerModel

EVERY = pytest.mark.parametrize("mixer", MIXERS)


def make(mixer, layers=2, width=64):
    """Weights of a size that makes every term count."""
    torch.manual_seed(0)
    model = MixerModel(mixer, 64, width, layers=layers)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def length_of(mixer):
    """Of the test: beyond 64 tokens, Hedgehog's steps have other windows than the whole."""
    return 64 if mixer == "hedgehog" else 90


def stepped(model, tokens, states):
    return torch.stack([model.step(token, states) for token in tokens.unbind(1)], 1)


@EVERY
@torch.no_grad()
def test_steps_give_what_the_whole_gives(mixer):
    model, tokens = make(mixer), torch.randint(64, (3, length_of(mixer)))
    want, got = model(tokens), stepped(model, tokens, model.init_state(3))
    # Sums of up to 128 products, a dozen layers of them, in float32: far below 1e-4 of their size.
    assert (got - want).abs().max() <= 1e-4 * want.abs().max()


@EVERY
@torch.no_grad()
def test_pieces_give_what_the_whole_gives(mixer):
    """Pieces of 64 tokens, at which Hedgehog's windows begin."""
    model, tokens = make(mixer), torch.randint(64, (2, 160))
    want, states = model(tokens), model.init_state(2)
    for end in (64, 128, 160):
        got = model.read(tokens[:, end - (64 if end < 160 else 32) : end], states)
        assert (got - want[:, end - 1]).abs().max() <= 1e-4 * want.abs().max()


@EVERY
@torch.no_grad()
def test_steps_go_on_from_a_piece(mixer):
    """A layer's state is the same whichever way it was reached, Hedgehog's too."""
    model, tokens = make(mixer, layers=1), torch.randint(64, (2, 160))
    reached = [model.init_state(2), model.init_state(2)]
    model.read(tokens[:, :128], reached[0])
    stepped(model, tokens[:, :128], reached[1])
    want, got = (stepped(model, tokens[:, 128:], states) for states in reached)
    assert (got - want).abs().max() <= 1e-4 * want.abs().max()


@EVERY
@torch.no_grad()
def test_steps_in_autocast(mixer):
    """As on a GPU: to the roundings of bfloat16."""
    model, tokens = make(mixer, layers=1), torch.randint(64, (3, 11))
    with torch.autocast("cpu", torch.bfloat16):
        want = model(tokens)
        got = stepped(model, tokens, model.init_state(3))
    # Six layers, of which each may round otherwise: 2⁻⁸ of a size that norms hold at 1.
    assert (got - want).abs().max() <= 6 * 2**-8 * max(1, want.abs().max())


@EVERY
def test_only_softmax_remembers_more_and_more(mixer):
    model, sizes = make(mixer), []
    states = model.init_state(1)
    for count in (1, 1, 1, 62, 65):
        for _ in range(count):
            model.step(torch.zeros(1, dtype=torch.long), states)
        sizes.append(sum(mixers.bytes_of(state.mixer) for state in states))
    assert (sizes[0] == sizes[2] == sizes[4]) == (mixer != "softmax")
    of_softmax = sizes[2] == 3 * sizes[0] and sizes[3] == 65 * sizes[0]
    assert (of_softmax and sizes[4] == 130 * sizes[0]) == (mixer == "softmax")


@EVERY
def test_every_weight_has_a_gradient(mixer):
    model = MixerModel(mixer, 64, layers=2)
    model(torch.randint(64, (2, 130))).square().mean().backward()
    without = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not without


def test_the_order_of_tokens_matters():
    """Without positions it could not, but for what a token sees of the one before it."""
    tokens = torch.tensor([[1, 2, 3, 4], [2, 1, 3, 4]])
    for mixer in MIXERS:
        logits = make(mixer)(tokens)[:, -1]
        assert (logits[0] - logits[1]).abs().max() > 1e-3, mixer


@pytest.mark.gpu
@EVERY
@torch.no_grad()
def test_on_a_gpu_steps_give_what_the_whole_gives(mixer):
    """Heads of 128 channels, for which everything has a kernel; to the roundings of bfloat16."""
    model = make(mixer, layers=1, width=256).cuda()
    tokens = torch.randint(64, (3, length_of(mixer)), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        want, got = model(tokens), stepped(model, tokens, model.init_state(3))
    assert (got - want).abs().max() <= 6 * 2**-8 * max(1, want.abs().max())
