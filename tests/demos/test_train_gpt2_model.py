"""The trainer without Python and torch: one step's numbers, beside PyTorch in float64."""

import math
import os
import subprocess
from pathlib import Path

import pytest
import torch
from models.gpt2 import GPT2, TORCH_OPS, Config
from plain_llama import LlamaSizes, PlainLlama
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from trainers import DTYPES, build

import thunderkittens
from thunderkittens.optim import adamw

CONFIG = Config(vocab_size=97, n_positions=40, n_embd=64, n_layer=2, n_head=2)
LLAMA = LlamaSizes(97, n_positions=40, n_embd=64, n_layer=2, n_head=4, key_heads=2, hidden=88)
BATCH, MICRO_STEPS, CLIP = 2, 2, 0.5

# A gradient passes through the roundings of the forward and the backward: per block the norms, the
# products, the scores, their exponentials and sums, gelu, the additions, ten or so, and three times
# that with the backward's two products for each of the forward's. They are independent, and add up
# as a random walk does. Llama's shape turns q and k, and multiplies two hidden values: two more.
ROUNDINGS = {
    "gpt2": 3 * (10 * CONFIG.n_layer + 1),
    "llama": 3 * (12 * LLAMA.n_layer + 1),
}
# Of the weights: what comes out of a product of 64 is as large as what went in, or so. More of it,
# twice where two values are multiplied, and errors would grow from layer to layer.
DEVIATION = {"gpt2": 0.15, "llama": 0.1}
LONGEST_SUM = 4 * CONFIG.n_embd


# In TF32, which a GPU multiplies float32 in, factors have 11 bits.
TF32 = 2**-11


def relative_bound(where: str, kind: str, dtype: str) -> float:
    """Of the root mean square of a tensor's errors, by that of its values.

    Sums are float32: where factors are, too, a product rounds as often as its sum is long.
    """
    if dtype == "float32" and where == "simulator":
        return DTYPES[dtype][1] * math.sqrt(ROUNDINGS[kind] * LONGEST_SUM)
    return max(DTYPES[dtype][1], TF32 if dtype == "float32" else 0) * math.sqrt(ROUNDINGS[kind])


SOURCE = Path("tests/demos/train_gpt2_probe.cpp")


def run(where: str, kind: str, folder: Path, dtype: str) -> None:
    """From in.safetensors to out.safetensors."""
    heads, more = (2, ()) if kind == "gpt2" else (4, (LLAMA.key_heads, LLAMA.hidden))
    sizes = (97, CONFIG.n_positions, 64, 2, heads, BATCH, MICRO_STEPS, CLIP, *more)
    files = (folder / "in.safetensors", folder / "out.safetensors")
    variables = {"KITTENS_SIM": "random:5,race"} if where == "race" else {}
    done = subprocess.run(
        [*map(str, (build(SOURCE, where), *files, where, dtype, *sizes))],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | variables,
    )
    assert done.returncode == 0, done.stderr


class Step:
    """What the trainer and PyTorch make of the same weights and tokens."""

    def __init__(self, where: str, kind: str, folder: Path, dtype: str):
        self.bound, self.dtype = relative_bound(where, kind, dtype), DTYPES[dtype][0]
        self.case = (where, kind, folder, dtype)
        torch.manual_seed(0)
        self.model = GPT2(CONFIG, TORCH_OPS) if kind == "gpt2" else PlainLlama(LLAMA)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():  # all terms of the formula count
                parameter.normal_(0.0, DEVIATION[kind])
                if ("ln_" in name and name.endswith("weight")) or "norm" in name:
                    parameter.add_(1.0)
                parameter.copy_(parameter.to(self.dtype))
        self.model.double()
        self.names = [name.removeprefix("transformer.") for name, _ in self.parameters()]
        tokens = torch.randint(0, 90, (MICRO_STEPS, BATCH, CONFIG.n_positions + 1))
        tokens[1, 0, 3] = tokens[0, 0, 0]  # nothing of it may be left from the batch before
        state = {
            n: p.detach().float() for n, (_, p) in zip(self.names, self.parameters(), strict=True)
        }
        save_file({**state, "tokens": tokens.float()}, folder / "in.safetensors")
        self.before = state
        run(where, kind, folder, dtype)
        self.got = load_file(folder / "out.safetensors")
        self.logits, self.losses = [], []
        for batch in tokens:
            self.logits.append(self.model(batch[:, :-1]).flatten(0, 1))
            loss = cross_entropy(self.logits[-1], batch[:, 1:].flatten())
            (loss / MICRO_STEPS).backward()
            self.losses.append(loss.item())

    def parameters(self):
        return list(self.model.named_parameters())

    def again(self) -> dict[str, torch.Tensor]:
        where, kind, folder, dtype = self.case
        run("race" if where == "simulator" else where, kind, folder, dtype)
        return load_file(folder / "out.safetensors")


KINDS = [(kind, dtype) for kind in ("gpt2", "llama") for dtype in DTYPES]
CASES = [("simulator", *kind) for kind in KINDS]
CASES += [pytest.param(("gpu", *kind), marks=pytest.mark.gpu) for kind in KINDS]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def it(request, tmp_path_factory) -> Step:
    where, kind, dtype = request.param
    return Step(where, kind, tmp_path_factory.mktemp("step"), dtype)


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


def test_logits_and_losses(it):
    got = it.got["logits"]
    assert relative_error(got[:, : CONFIG.vocab_size], it.logits[0].detach()) < it.bound
    assert not got[:, CONFIG.vocab_size :].any()  # the embedding's padding
    rows = BATCH * CONFIG.n_positions
    for loss, want in zip(it.got["results"][:MICRO_STEPS] / rows, it.losses, strict=True):
        assert abs(float(loss) - want) < it.bound * float(it.logits[0].detach().abs().max())


def test_every_gradient(it):
    errors = {
        name: relative_error(it.got[f"gradient.{name}"], parameter.grad)
        for name, (_, parameter) in zip(it.names, it.parameters(), strict=True)
    }
    is_gpt2 = isinstance(it.model, GPT2)
    assert len(errors) == (2 + 12 * CONFIG.n_layer + 2 if is_gpt2 else 2 + 9 * LLAMA.n_layer)
    wrong = {name: error for name, error in errors.items() if not error < it.bound}
    assert not wrong


def test_rows_of_tokens_that_are_not_there_have_the_classifiers_gradient_alone(it):
    want = it.parameters()[0][1].grad[90:]
    assert relative_error(it.got[f"gradient.{it.names[0]}"][90:], want) < it.bound


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
    device = "cuda" if it.case[0] == "gpu" else "cpu"
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
