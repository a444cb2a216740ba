"""What is exchanged, what each stage trains, and that the steps are those of the whole."""

import copy

import convert
import lolcats as program
import pytest
import torch
from conftest import random_weights
from models import checkpoint, data
from models.gpt2 import GPT2, Config, generate

import thunderkittens as tk

CONFIG = Config(vocab_size=300, n_positions=160, n_embd=32, n_layer=2, n_head=2)


@pytest.fixture
def teacher(tokenizer, tmp_path):
    """A folder with a model that knows nothing, but has attention to imitate."""
    config = Config(tokenizer.get_vocab_size(), n_positions=160, n_embd=32, n_layer=2, n_head=2)
    model = random_weights(GPT2(config))
    checkpoint.save(tmp_path / "teacher", model, tokenizer)
    return tmp_path / "teacher"


@pytest.fixture
def model():
    return random_weights(GPT2(CONFIG)).requires_grad_(False).eval()


def options(*more):
    small = "--device cpu --batch 4 --features 8 --eval-tokens 640 --tokens 5 --prompt x"
    return program.parse_options([*small.split(), *map(str, more)])


def batches(length=159):
    tokens = torch.randint(300, (4000,), generator=torch.Generator().manual_seed(3))
    return data.Batches(tokens, 4, length, seed=0)


def state_of(model):
    return copy.deepcopy(model.state_dict())


def test_taught_it_is_softmax_attention_and_says_how_far_it_is(model):
    tokens = batches()[0]
    want = model(tokens)
    layers = convert.exchange(model, 8)
    for layer in layers:
        layer.taught = True
    # Everything but the attention's place is the same: so are the bits.
    assert torch.equal(model(tokens), want) and all(layer.error > 0 for layer in layers)
    q, k, v = torch.randn(3, 2, 100, 2, 16, dtype=torch.float32).unbind()
    layers[0](q, k, v)
    wanted, got = tk.attention(q, k, v, causal=True), layers[0].learned(q, k, v)
    error = (got - wanted).square().sum() / wanted.square().sum()
    assert torch.allclose(layers[0].error, error, rtol=1e-4)
    layers[0].taught = False
    assert torch.equal(layers[0](q, k, v), got)


def test_transfer_moves_features_and_weights_alone_and_brings_them_closer(model):
    layers = convert.exchange(model, 8)
    before = state_of(model)
    errors = program.transfer(model, layers, batches(), options("--transfer-steps", 24))
    moved = {name for name, t in model.state_dict().items() if not torch.equal(t, before[name])}
    assert moved == {name for name in before if ".learned." in name} and len(moved) == 6
    assert len(errors) == 2 and all(len(e) == 24 for e in errors)
    assert all(sum(e[-4:]) < 0.8 * sum(e[:4]) for e in errors)
    assert not any(layer.taught for layer in layers)


@pytest.mark.parametrize("rank", [0, 3])
def test_finetuning_moves_the_projections_or_all(model, rank):
    teacher = copy.deepcopy(model)
    convert.exchange(model, 8)
    before = state_of(model)
    given = options("--finetune-steps", 12, "--rank", rank, "--finetune-lr", 0.01)
    above = program.finetune(model, teacher, batches(), given)
    after = model.state_dict()
    assert list(after) == list(before)  # the adapters are merged
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    adapted = {n for n in after if n.endswith(("attn.c_attn.weight", "attn.c_proj.weight"))}
    assert moved == (adapted if rank else set(after))
    for name in adapted if rank else ():
        assert torch.linalg.matrix_rank(after[name] - before[name], atol=1e-4) <= rank
    assert len(above) == 12 and sum(above[-3:]) < sum(above[:3])


def test_an_adapter_begins_as_nothing_and_is_merged_exactly(model):
    tokens = batches()[0]
    want = model(tokens)
    convert.add_adapters(model, 4)
    assert torch.equal(model(tokens), want)
    for block in model.transformer.h:
        torch.nn.init.normal_(block.attn.c_attn.b, std=0.1)
    want = model(tokens)
    convert.merge_adapters(model)
    # One rounding of a weight more or less, in float32, of sums of 32 products.
    assert (model(tokens) - want).abs().max() <= 1e-4 * want.abs().max()


@torch.no_grad()
def test_steps_give_what_the_whole_gives(model):
    """Up to 64 tokens, where windows of both kinds see everything or the same."""
    convert.exchange(model, 8)
    tokens = batches()[0][:, :64]
    want, cache = model(tokens), convert.Cache(CONFIG.n_layer)
    logits = [model(tokens[:, :20], cache)[:, 0]]
    logits += [model(token, cache)[:, 0] for token in tokens[:, 20:].split(1, 1)]
    # Sums of up to 128 products, a dozen layers of them, in float32: far below 1e-4 of their size.
    assert (torch.stack(logits, 1) - want[:, 19:]).abs().max() <= 1e-4 * want.abs().max()


def test_generation_has_a_constant_state_and_goes_on_behind_the_positions(model):
    convert.exchange(model, 8)
    cache, sizes = convert.Cache(CONFIG.n_layer), set()
    stream = generate(model, [1, 2, 3], cache=cache)
    for _ in range(200):  # more than the 160 positions
        next(stream)
        sizes.add(cache.nbytes())
    assert len(sizes) == 1 and cache.length <= 160


def test_the_program(teacher, text, tmp_path, capsys):
    small = "--device cpu --batch 4 --length 160 --features 8 --eval-tokens 800 --tokens 5".split()
    small += "--transfer-steps 16 --finetune-steps 16 --finetune-lr 0.02 --rank 4".split()
    given = [*small, "--checkpoint", str(teacher), "--data", str(text), "--out", str(tmp_path)]
    code = program.main(given)
    printed = capsys.readouterr().out
    losses = [float(line.split()[-2]) for line in printed.splitlines()[1:5]]
    assert code == int(not losses[3] < losses[2] < losses[1]) and losses[3] < losses[2]
    assert "hedgehog_attention: torch" in printed and "def read_lines(path):" in printed
    assert (tmp_path / "lolcats.png").read_bytes().startswith(b"\x89PNG")


def test_a_teacher_within_the_window_is_refused(checkpoint_folder, capsys):
    assert program.main(["--checkpoint", str(checkpoint_folder)]) == 2
    assert "has 32 positions; the window" in capsys.readouterr().err


def test_bad_arguments_and_files_exit_2(teacher, tmp_path, capsys):
    for wrong in (
        ["--rank", "-1"],
        ["--length", "128"],
        ["--transfer-steps", "1"],
        ["--prompt", ""],
    ):
        with pytest.raises(SystemExit) as caught:
            program.main(wrong)
        assert caught.value.code == 2
    capsys.readouterr()
    assert program.main(["--checkpoint", str(tmp_path / "none")]) == 2
    assert program.main(["--checkpoint", str(teacher), "--data", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("lolcats: ") == 2
