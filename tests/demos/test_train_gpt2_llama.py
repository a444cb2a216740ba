"""The trainer without Python and torch: models of Llama's shape, beside PyTorch in float64."""

import math

import pytest
import torch
from models import checkpoint, llama_checkpoint, llama_config
from plain_llama import LlamaSizes, PlainLlama
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from trainers import (
    DTYPES,
    LENGTH,
    PROMPT,
    VOCABULARY,
    column,
    logits_of,
    outcome,
    read_tokens,
    refused,
    sampled_roundoff,
    succeeded,
)

SIZES = LlamaSizes(
    VOCABULARY, n_positions=24, n_embd=32, n_layer=2, n_head=4, key_heads=2, hidden=56
)
SMALL = (
    f"--model llama --vocabulary {VOCABULARY} --layers 2 --heads 4 --key-heads 2 --width 32 "
    f"--length {LENGTH} --batch 2 --lr 0.01 --dtype float32"
).split()


def make_llama(folder, sizes: LlamaSizes = SIZES, dtype: torch.dtype = torch.float32) -> PlainLlama:
    """A checkpoint, and its model in float64: weights of a size where all terms count."""
    torch.manual_seed(7)
    model = PlainLlama(sizes)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(float("norm" in name), 0.8 / math.sqrt(sizes.n_embd))
            parameter.copy_(parameter.to(dtype))
    model.save(folder)
    return model.double()


def test_steps_are_pytorchs(run_trainer, tokens_file, tmp_path):
    """As test_train_gpt2.py's ten steps; the base of the angles is that of the checkpoint."""
    sizes = LlamaSizes(**{**vars(SIZES), "theta": 500.0})
    error = math.sqrt(6) * 2**-24 * math.sqrt(3 * (12 * sizes.n_layer + 1) * sizes.hidden)
    out, model = tmp_path / "out", make_llama(tmp_path / "init", sizes)
    more = "--batch 4 --steps 6 --lr 0.01 --schedule constant --epsilon 1e-4 --dtype float32"
    more = [*more.split(), "--length", LENGTH, "--total-batch", 8 * LENGTH, "--weight-decay", 0]
    more += ["--init", tmp_path / "init", "--eval", tokens_file, "--eval-batches", 2]
    succeeded(run_trainer("--train", tokens_file, "--out", out, *more))
    first = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.01, betas=(0.9, 0.95), eps=1e-4, weight_decay=0.0
    )
    batch = read_tokens(tokens_file).unfold(0, LENGTH + 1, LENGTH)

    def mean_loss() -> torch.Tensor:
        return cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    for step in range(6):
        loss = mean_loss()
        assert abs(float(column(out, "loss")[step]) - loss.item()) < 2**-17
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert math.isclose(float(column(out, "norm")[step]), float(norm), rel_tol=error)
        optimizer.step()
    assert abs(float(column(out, "eval_loss")[0]) - mean_loss().item()) < 2**-17
    got = load_file(out / "step-00000006" / "model.safetensors")
    assert got.keys() == first.keys()
    for name, want in model.named_parameters():
        assert (got[name].double() - want).norm() < error * (want - first[name]).norm(), name


@pytest.mark.parametrize(
    "recipe",
    ["--dtype float32", "--dtype bfloat16", "--dtype bfloat16 --stochastic-rounding"],
    ids=["float32", "bfloat16", "stochastic"],
)
def test_a_resumed_and_a_second_run_have_the_same_bits(run_trainer, tokens_file, tmp_path, recipe):
    """The second one keeps less, and is recorded; the one that stops has the same at last."""
    more = ["--train", tokens_file, *SMALL, *recipe.split(), "--total-batch", 4 * LENGTH]
    more += ["--sample", 4, "--keep", 9, "--save-every", 2, "--steps", 4]
    whole, again = tmp_path / "whole", tmp_path / "again"
    text = succeeded(run_trainer(*more, "--out", whole))
    assert "4 steps, in whose loop 0 allocations and 0 synchronisations" in text
    succeeded(run_trainer(*more, "--out", again, "--recompute", "--graph", KITTENS_SIM="random:7"))
    want = outcome(whole, 4)
    assert outcome(again, 4) == want
    for path in (whole / "step-00000004").iterdir():
        path.unlink()
    (whole / "step-00000004").rmdir()
    resumed = succeeded(run_trainer(*more, "--out", whole, "--resume"))
    assert outcome(whole, 4) == want
    assert resumed.split("sample:")[1].split("\n")[0] == text.split("sample:")[1].split("\n")[0]


# Heads of 8 columns go through attention_cached, of 64 through attention_decode.
SHAPES = [("float32", 32, 4, 2), ("bfloat16", 64, 8, 2), ("bfloat16", 256, 4, 2)]
CASES = [("simulator", *shape) for shape in SHAPES]
CASES += [pytest.param("gpu", *shape, marks=pytest.mark.gpu) for shape in SHAPES]


@pytest.mark.parametrize(("where", "dtype", "width", "heads", "keys"), CASES)
def test_logits_over_the_cache_are_pytorchs(tmp_path, where, dtype, width, heads, keys):
    """As test_train_gpt2_sampler.py's; q and k are turned, and two hidden values multiplied."""
    sizes = LlamaSizes(VOCABULARY, 24, width, 2, heads, keys, hidden=96)
    model = make_llama(tmp_path / "model", sizes, DTYPES[dtype][0])
    with torch.no_grad():
        want = model(torch.tensor([PROMPT]))[0]
    got = logits_of(where, tmp_path / "model", dtype)
    bound = sampled_roundoff(where, dtype) * math.sqrt(12 * sizes.n_layer + 1)
    assert (got.double() - want).norm() < bound * want.norm()
    if where == "simulator":
        assert torch.equal(logits_of("race", tmp_path / "model", dtype, "random:3,race"), got)


def test_others_read_its_checkpoint(run_trainer, tokens_file, tmp_path):
    """transformers computes the same logits; demos.generate and demos.serve load it."""
    out = tmp_path / "out"
    more = [*SMALL, "--hidden", 72, "--theta", 5000, "--steps", 2]
    text = succeeded(run_trainer("--train", tokens_file, "--out", out, *more))
    weights = VOCABULARY * 32 + 2 * (32 * (32 + 2 * 16) + 32 * 32 + 3 * 32 * 72)
    assert f"{(6 * weights + 6 * 2 * LENGTH * 32) / 1e6:.4g} MFLOP a token" in text
    step = out / "step-00000002"
    config, _ = llama_config.read_config(step)
    assert (config.head_dim, config.heads, config.intermediate_size) == (8, (4, 2, 2), 72)
    assert config.rope.theta == 5000 and config.tie_word_embeddings
    loaded = llama_checkpoint.load(step, config, None, torch.device("cpu"))
    stored = load_file(step / "model.safetensors")
    assert all(torch.equal(v, stored[n]) for n, v in llama_checkpoint.views(loaded).items())
    sizes = LlamaSizes(VOCABULARY, LENGTH, 32, 2, 4, 2, 72, theta=5000.0)
    model, tokens = PlainLlama(sizes), read_tokens(tokens_file)[None, :LENGTH]
    for name, value in stored.items():
        model.weights[name].data = value
    transformers = pytest.importorskip("transformers")
    theirs = transformers.LlamaForCausalLM.from_pretrained(step, attn_implementation="eager")
    with torch.no_grad():
        # Both are float32, of logits below 1: a few dozen roundings.
        assert (theirs.eval()(tokens).logits - model(tokens)).abs().max() < 1e-5
        assert model(tokens).abs().max() > 0.05


def test_first_weights_are_gpt2s(run_trainer, tokens_file, tmp_path):
    """Of n normal values the deviation is known to 1 / √(2 n)."""
    more = ["--steps", 1, "--lr", 0, "--out", tmp_path / "out"]
    succeeded(run_trainer("--train", tokens_file, *SMALL, *more))
    weights = load_file(tmp_path / "out" / "step-00000001" / "model.safetensors")
    assert weights["model.layers.1.mlp.up_proj.weight"].shape == (
        88,
        32,
    )  # 8/3 · 32, a multiple of 8
    for name, value in weights.items():
        if value.dim() == 1:
            assert (value == 1).all(), name
            continue
        residual = name.endswith(("o_proj.weight", "down_proj.weight"))
        want = 0.02 / (2.0 if residual else 1.0)
        assert abs(float(value.std()) - want) < 5 * want / math.sqrt(2 * value.numel()), name


DAMAGED = {
    "hidden_act": ("gelu", "hidden_act must be silu, got gelu"),
    "tie_word_embeddings": (False, "tie_word_embeddings must be true"),
    "attention_bias": (True, "attention_bias must be false"),
    "mlp_bias": (True, "mlp_bias must be false"),
    "head_dim": (16, "head_dim must be hidden_size / num_attention_heads"),
    "num_key_value_heads": (3, "a multiple of those of keys, got 4 and 3"),
    "intermediate_size": (60, "the MLP's width must be a multiple of 8, got 60"),
    "rope_theta": (-1, "rope_theta must be 1 to 1e12"),
    "rope_scaling": ({"rope_type": "llama3"}, "must be the default one, got llama3"),
    "rope_parameters": ({"rope_type": "yarn", "rope_theta": 1e4}, "got yarn"),
    "rms_norm_eps": (0, "rms_norm_eps must be in 0 … 1"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_configs_are_refused(run_trainer, tokens_file, tmp_path, name):
    value, part = DAMAGED[name]
    make_llama(tmp_path / "init")
    path = tmp_path / "init" / "config.json"
    checkpoint.write_json(path, {**checkpoint.read_json(path), name: value})
    more = ["--length", LENGTH, "--init", tmp_path / "init", "--out", tmp_path / "out"]
    refused(run_trainer("--train", tokens_file, *more), path, part)


def test_theta_may_stand_where_newer_configurations_have_it(run_trainer, tokens_file, tmp_path):
    make_llama(tmp_path / "old", LlamaSizes(**{**vars(SIZES), "theta": 77.0}))
    make_llama(tmp_path / "new", LlamaSizes(**{**vars(SIZES), "theta": 77.0}))
    path = tmp_path / "new" / "config.json"
    entries = checkpoint.read_json(path)
    del entries["rope_theta"]
    entries["rope_parameters"] = {"rope_type": "default", "rope_theta": 77.0}
    checkpoint.write_json(path, entries)
    assert torch.equal(
        *(logits_of("simulator", tmp_path / name, "float32") for name in ("old", "new"))
    )


WRONG = {
    "--model=bert": "got bert",
    "--key-heads=3": "a multiple of those of keys, got 4 and 3",
    "--hidden=20": "a multiple of 8, got 20",
    "--theta=0": "--theta must be 1 to 1e+12",
    "--model=gpt2": "--key-heads must come with --model llama",
}


@pytest.mark.parametrize("option", WRONG)
def test_wrong_options_are_refused(run_trainer, tokens_file, tmp_path, option):
    done = run_trainer("--train", tokens_file, "--out", tmp_path / "out", *SMALL, option)
    refused(done, WRONG[option])
