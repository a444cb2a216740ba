"""The recall task, each mixer by steps, and that the demo learns."""

import linear_models as program
import pytest
import torch

EVERY = pytest.mark.parametrize("mixer", program.MIXERS)


def test_targets_are_the_values_of_the_keys():
    tokens, targets = program.make_batch(3, 5, torch.device("cpu"))
    assert tokens.shape == targets.shape == (3, 15)
    assert (targets[:, :10] == -100).all()
    for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        values = dict(zip(row[0:10:2], row[1:10:2], strict=True))
        assert len(values) == 5
        assert [values[key] for key in row[10:]] == wanted[10:]
        assert all(v >= program.KEYS for v in values.values())


@EVERY
@torch.no_grad()
def test_steps_give_what_the_whole_gives(mixer):
    model, tokens = program.Model(mixer), torch.randint(64, (3, 11))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    want, state = model(tokens), model.init_state(3)
    got = torch.stack([model.step(t, state) for t in tokens.unbind(1)], 1)
    # Sums of up to 128 products, six layers of them, in float32: far below 1e-4 of their size.
    assert (got - want).abs().max() <= 1e-4 * want.abs().max()


@EVERY
@torch.no_grad()
def test_steps_in_autocast(mixer):
    """As on a GPU: to the roundings of bfloat16."""
    model, tokens = program.Model(mixer), torch.randint(64, (3, 11))
    with torch.autocast("cpu", torch.bfloat16):
        want, state = model(tokens), model.init_state(3)
        got = torch.stack([model.step(t, state) for t in tokens.unbind(1)], 1)
    # Six layers, of which each may round otherwise: 2⁻⁸ of a size that norms hold at 1.
    assert (got - want).abs().max() <= 6 * 2**-8 * max(1, want.abs().max())


@EVERY
def test_only_softmax_remembers_more_and_more(mixer):
    model, sizes = program.Model(mixer), []
    state = model.init_state(1)
    for _ in range(3):
        model.step(torch.zeros(1, dtype=torch.long), state)
        sizes.append(program.bytes_of(state["mixer"]))
    assert (sizes[0] == sizes[2]) == (mixer != "softmax")
    assert (sizes[2] == 3 * sizes[0]) == (mixer == "softmax")


def test_it_learns(capsys):
    """Two pairs, which are enough to see that keys find their values: 1 of 32 is chance."""
    options = ["--device", "cpu", "--pairs", "2", "--steps", "80"]
    assert program.main([*options, "--mixers", "linear,softmax"]) == 0
    printed = capsys.readouterr().out
    assert "linear" in printed and "softmax" in printed and "retention" not in printed
    assert program.main([*options, "--mixers", "linear", "--steps", "1"]) == 1
    for wrong in (["--mixers", "none"], ["--steps", "0"], ["--pairs", "33"]):
        with pytest.raises(SystemExit):
            program.main(wrong)
