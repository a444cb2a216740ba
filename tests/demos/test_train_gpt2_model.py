"""The trainer without Python and torch: one step's numbers, beside PyTorch in float64."""

import math

import pytest
import torch
from models.gpt2 import Config
from one_step import CLIP, Problem, Step, relative_error
from plain_llama import LlamaSizes
from trainers import DTYPES

import thunderkittens
from thunderkittens.optim import adamw

MICRO_STEPS = 2
PROBLEMS = {
    "gpt2": Problem(
        Config(97, n_positions=40, n_embd=64, n_layer=2, n_head=2), 0.15, 2, MICRO_STEPS
    ),
    "llama": Problem(
        LlamaSizes(97, n_positions=40, n_embd=64, n_layer=2, n_head=4, key_heads=2, hidden=88),
        0.1,
        2,
        MICRO_STEPS,
    ),
}
KINDS = [(kind, dtype) for kind in PROBLEMS for dtype in DTYPES]
CASES = [("simulator", *kind) for kind in KINDS]
CASES += [pytest.param(("gpu", *kind), marks=pytest.mark.gpu) for kind in KINDS]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def it(request, tmp_path_factory) -> Step:
    where, kind, dtype = request.param
    return Step(where, PROBLEMS[kind], tmp_path_factory.mktemp("step"), dtype)


def test_logits_and_losses(it):
    it.check_logits_and_losses()


def test_every_gradient(it):
    it.check_every_gradient()


def test_rows_of_tokens_that_are_not_there_have_the_classifiers_gradient_alone(it):
    want = it.parameters()[0][1].grad[it.used :]
    assert relative_error(it.got[f"gradient.{it.names[0]}"][it.used :], want) < it.bound


def test_two_updates_are_adamws(it):
    """From the trainer's own gradients: what the update adds in error is its own.

    A weight is rounded to float32 twice, and two steps of 0.01 and 0.02 have a handful of float32
    roundings each (the clipped gradient, moments, root, quotient).
    """
    params = [torch.nn.Parameter(it.before[name].double()) for name in it.names]
    matrices = [p for p in params if p.dim() > 1]
    vectors = [p for p in params if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    gradients = [it.got[f"gradient.{name}"].double() for name in it.names]
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
    assert norm > CLIP
    assert abs(float(it.got["results"][MICRO_STEPS]) - norm) < 2**-20 * norm
    for rate in (0.01, 0.02):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for parameter, gradient in zip(params, gradients, strict=True):
            parameter.grad = gradient * (CLIP / (norm + 1e-6))
        optimizer.step()
    for name, parameter in zip(it.names, params, strict=True):
        got, want = it.got[f"updated.{name}"], parameter.detach()
        bound = 2 * 2**-24 * want.abs() + 2**-20 * 0.03
        assert ((got.double() - want).abs() <= bound).all(), name
        assert torch.equal(it.got[f"rounded.{name}"], got.to(it.dtype).float()), name


def test_two_updates_are_our_optimizers(it, monkeypatch):
    """Bit for bit, from the trainer's own gradients and their norm: both launch one kernel.

    (A norm is a sum, which goes by tensors here and by pieces of memory there.)
    """
    device = "cuda" if it.where == "gpu" else "cpu"
    params = {
        name: torch.nn.Parameter(it.before[name].to(it.dtype).to(device)) for name in it.names
    }
    for name, parameter in params.items():
        parameter.grad = it.got[f"gradient.{name}"].to(parameter)
    groups = [
        {"params": [p for p in params.values() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in params.values() if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = thunderkittens.optim.AdamW(
        groups, betas=(0.9, 0.95), eps=1e-8, max_norm=CLIP, master_weights=True
    )
    norm = it.got["results"][MICRO_STEPS].to(device)
    own = adamw.norm_of(list(params.values()), [p.grad for p in params.values()])
    assert abs(float(own - norm)) < 2**-20 * float(norm)
    monkeypatch.setattr(adamw, "norm_of", lambda params, grads: norm)
    with thunderkittens.backend("auto" if device == "cuda" else "simulator"):
        for rate in (0.01, 0.02):
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
    for name, parameter in params.items():
        exact = optimizer.state[parameter].get("master_param", parameter).detach().cpu()
        assert torch.equal(exact, it.got[f"updated.{name}"]), name
        assert torch.equal(parameter.detach().float().cpu(), it.got[f"rounded.{name}"]), name


def test_the_same_step_again_is_no_outlier(it):
    """Of values that are all alike, z is 0; before the window was full, there was none."""
    norm = it.got["results"][MICRO_STEPS]
    assert it.got["results"][MICRO_STEPS + 2 :].tolist() == pytest.approx(
        [math.nan, math.nan, 0.0], nan_ok=True
    )
    assert it.got["verdict"].tolist() == [norm, 0.0, 0.0, 0.0]


def test_it_computes_the_same_bits_again(it):
    """NaN, too. The simulator goes into race mode, with another order of threads: none races."""
    again = it.again()
    assert again.keys() == it.got.keys()
    for name, values in it.got.items():
        assert torch.equal(again[name].view(torch.int32), values.view(torch.int32)), name
