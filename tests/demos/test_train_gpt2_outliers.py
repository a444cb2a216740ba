"""The trainer without Python and torch: steps that make no update, and how weights are rounded."""

import itertools
import math
import statistics

import pytest
import torch
from models import checkpoint
from models.gpt2 import TORCH_OPS
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from trainers import (
    CONFIG,
    LENGTH,
    RECIPE,
    SMALL,
    column,
    make_checkpoint,
    read_tokens,
    refused,
    rows,
    succeeded,
)

WINDOW = 3


def z_scores(values: list[float], window: int) -> list[float | None]:
    """By the formula of outliers.h, each value among the last ones."""
    scores: list[float | None] = [None] * min(window, len(values))
    for i in range(window, len(values)):
        last = values[i - window + 1 : i + 1]
        scores.append((values[i] - statistics.fmean(last)) / statistics.pstdev(last))
    return scores


@pytest.mark.parametrize("name", ["loss", "norm"])
def test_a_step_is_skipped_where_its_z_is_high(run_trainer, tokens_file, tmp_path, name):
    """It changes neither weights nor moments, and is logged and counted; all others do."""
    out, limit, steps = tmp_path / "out", 0.5, 12
    more = f"--steps {steps} --outlier-window {WINDOW} --skip-{name}-z {limit} --batch 1".split()
    more += ["--save-every", 1, "--keep", steps, "--log-every", 100]
    text = succeeded(run_trainer("--train", tokens_file, "--out", out, *SMALL, *more))
    skipped = [row["skipped"] == "1" for row in rows(out)]
    for each in ("loss", "norm"):
        want = z_scores([float(x) for x in column(out, each)], WINDOW)
        got = [float(row[f"{each}_z"] or "nan") for row in rows(out)]
        for z, expected in zip(got, want, strict=True):
            # Of 24 bits, a mean of three and differences that are 1 % of it.
            assert math.isnan(z) if expected is None else abs(z - expected) < 1e-3
        if each == name:
            assert skipped == [z > limit for z in got]
    assert 2 <= sum(skipped) <= steps - WINDOW - 2, "both kinds of steps are there"
    assert f"{sum(skipped)} of all {steps} steps skipped\n" in text
    lines = [line for line in text.splitlines() if line.endswith("  skipped")]
    assert [int(line.split()[1].split("/")[0]) for line in lines] == [
        i + 1 for i, skip in enumerate(skipped) if skip
    ]
    states = [out / f"step-{step:08d}" for step in range(1, steps + 1)]
    for (before, after), skip in zip(itertools.pairwise(states), skipped[1:], strict=True):
        weights = [load_file(folder / "model.safetensors") for folder in (before, after)]
        moments = [load_file(folder / "training.safetensors") for folder in (before, after)]
        for old, new in (weights, moments):
            kept = [torch.equal(new[key], old[key]) for key in old if "outliers" not in key]
            assert all(kept) if skip else not any(kept)


def test_updates_behind_a_skipped_step_are_pytorchs(run_trainer, tokens_file, tmp_path):
    """AdamW's t counts the updates that were made. Sums as in test_train_gpt2.py's ten steps."""
    error = math.sqrt(8) * 2**-24 * math.sqrt(3 * (10 * CONFIG.n_layer + 1) * 4 * CONFIG.n_embd)
    out, model = tmp_path / "out", make_checkpoint(tmp_path / "init").double()
    more = "--batch 8 --steps 8 --lr 0.05 --schedule constant --epsilon 1e-4 --dtype float32"
    more += f" --outlier-window 2 --skip-norm-z 0.5 --weight-decay 0 --length {LENGTH}"
    init = ["--init", tmp_path / "init", "--out", out]
    succeeded(run_trainer("--train", tokens_file, *init, *more.split()))
    first = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.05, betas=(0.9, 0.95), eps=1e-4, weight_decay=0.0
    )
    batch = read_tokens(tokens_file).unfold(0, LENGTH + 1, LENGTH)
    skipped = [row["skipped"] == "1" for row in rows(out)]
    assert not all(skipped[skipped.index(True) :]), "there are updates behind one that is skipped"
    for skip in skipped:
        loss = cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not skip:
            optimizer.step()
    for name, value in checkpoint.load(out / "step-00000008", ops=TORCH_OPS).state_dict().items():
        want = model.state_dict()[name]
        assert (value.double() - want).norm() < error * (want - first[name]).norm(), name


def test_a_norm_that_is_not_finite_makes_no_update(run_trainer, tokens_file, tmp_path):
    """Values of 10²⁵, taken back by the projection behind them, whose gradient's square overflows
    while the loss does not."""
    model = make_checkpoint(tmp_path / "init")
    with torch.no_grad():
        attention = model.transformer.h[0].attn
        attention.c_attn.weight[:, 2 * CONFIG.n_embd :] *= 1e25
        attention.c_proj.weight *= 1e-25
    checkpoint.write_tensors(tmp_path / "init" / "model.safetensors", model.state_dict())
    out = tmp_path / "out"
    more = ["--init", tmp_path / "init", "--steps", 2]
    text = succeeded(run_trainer("--train", tokens_file, "--out", out, *RECIPE, *more))
    assert "2 of all 2 steps skipped" in text
    assert [(row["norm"], row["norm_z"], row["skipped"]) for row in rows(out)] == [
        ("inf", "", "1")
    ] * 2
    for name, value in checkpoint.load(out / "step-00000002", ops=TORCH_OPS).state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name


DAMAGED = {
    "skipped": ("7", "cannot have skipped 7 of 2 steps"),
    "outliers.losses": ("256", "outliers.losses must be below 256, got 256"),
    "outliers.norms": ("-1", "outliers.norms as a whole number"),
    "step": ("two", "step as a whole number"),
    "outlier-window": ("3", "the run has outlier-window 3, got 128"),
    "rounding": ("stochastic", "the run has rounding stochastic, got to the nearest"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_numbers_of_a_run_are_refused(run_trainer, tokens_file, tmp_path, name):
    value, part = DAMAGED[name]
    out = tmp_path / "out"
    more = ["--train", tokens_file, "--out", out, *SMALL]
    succeeded(run_trainer(*more, "--steps", 2))
    path = out / "step-00000002" / "training.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert name in metadata
    save_file(load_file(path), path, metadata | {name: value})
    refused(run_trainer(*more, "--resume"), path, part)


def test_weights_without_masters_are_rounded_at_random(run_trainer, tokens_file, tmp_path):
    """AdamW's first step moves each weight by the learning rate, a small part of the distance of
    two bfloat16 numbers here: so many of them go to their neighbour. To the nearest, none would."""
    model, rate = make_checkpoint(tmp_path / "init").bfloat16(), 1e-6
    checkpoint.write_tensors(tmp_path / "init" / "model.safetensors", model.state_dict())
    more = f"--steps 1 --schedule constant --weight-decay 0 --lr {rate} --batch 8 --length {LENGTH}"
    more = [*more.split(), "--epsilon", 1e-20, "--init", tmp_path / "init", "--train", tokens_file]
    more += ["--stochastic-rounding"]
    for seed in (1, 2):
        succeeded(run_trainer(*more, "--out", tmp_path / f"out{seed}", "--seed", seed))
    after = [
        checkpoint.load(tmp_path / f"out{seed}" / "step-00000001", ops=TORCH_OPS) for seed in (1, 2)
    ]
    moved, chance, variance, both = 0, 0.0, 0.0, 0
    for name, value in model.named_parameters():
        got, again = (m.get_parameter(name).detach() for m in after)
        assert torch.equal(got, got.bfloat16().float()), name
        old = value.detach()
        distance = torch.finfo(torch.bfloat16).eps * torch.exp2(old.float().abs().log2().floor())
        far = distance > 2 * rate  # not of weights near zero, nor of biases, which are zero
        part = (rate / distance)[far]
        changed = (got != old.float())[far]
        assert ((got - old.float()).abs() <= distance)[far].all(), name
        moved += int(changed.sum())
        both += int((changed & (again != old.float())[far]).sum())
        chance += float(part.sum())
        variance += float((part * (1 - part)).sum())
    # A binomial's deviation; and in 100 gradients there are less than 1 that are 0.
    assert abs(moved - chance) < 5 * math.sqrt(variance) + 0.01 * chance
    assert both < moved / 2, "another seed, other numbers"
    refused(run_trainer(*more, "--dtype", "float32"), "--stochastic-rounding is of bfloat16")
