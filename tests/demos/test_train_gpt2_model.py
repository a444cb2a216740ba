"""The trainer without Python and torch: one step's numbers, beside PyTorch in float64."""

import math
import os
import subprocess
from pathlib import Path

import pytest
import torch
from models.gpt2 import GPT2, TORCH_OPS, Config
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from trainers import DTYPES, build

CONFIG = Config(vocab_size=97, n_positions=40, n_embd=64, n_layer=2, n_head=2)
BATCH, MICRO_STEPS, CLIP = 2, 2, 0.5

# A gradient passes through the roundings of the forward and the backward: per block the norms, the
# products, the scores, their exponentials and sums, gelu, the additions, ten or so, and three times
# that with the backward's two products for each of the forward's. They are independent, and add up
# as a random walk does.
ROUNDINGS = 3 * (10 * CONFIG.n_layer + 1)
LONGEST_SUM = 4 * CONFIG.n_embd


# In TF32, which a GPU multiplies float32 in, factors have 11 bits.
TF32 = 2**-11


def relative_bound(where: str, dtype: str) -> float:
    """Of the root mean square of a tensor's errors, by that of its values.

    Sums are float32: where factors are, too, a product rounds as often as its sum is long.
    """
    if dtype == "float32" and where == "simulator":
        return DTYPES[dtype][1] * math.sqrt(ROUNDINGS * LONGEST_SUM)
    return max(DTYPES[dtype][1], TF32 if dtype == "float32" else 0) * math.sqrt(ROUNDINGS)


SOURCE = Path("tests/demos/train_gpt2_probe.cpp")


def run(where: str, folder: Path, dtype: str) -> None:
    """From in.safetensors to out.safetensors."""
    sizes = (97, CONFIG.n_positions, 64, 2, 2, BATCH, MICRO_STEPS, CLIP)
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

    def __init__(self, where: str, folder: Path, dtype: str):
        self.bound, self.dtype = relative_bound(where, dtype), DTYPES[dtype][0]
        torch.manual_seed(0)
        self.model = GPT2(CONFIG, TORCH_OPS)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():  # all terms of the formula count
                parameter.normal_(0.0, 0.15)
                if "ln_" in name and name.endswith("weight"):
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
        self.folder, self.before = folder, state
        run(where, folder, dtype)
        self.got = load_file(folder / "out.safetensors")
        self.logits, self.losses = [], []
        for batch in tokens:
            self.logits.append(self.model(batch[:, :-1]).flatten(0, 1))
            loss = cross_entropy(self.logits[-1], batch[:, 1:].flatten())
            (loss / MICRO_STEPS).backward()
            self.losses.append(loss.item())

    def parameters(self):
        return list(self.model.named_parameters())


CASES = [("simulator", dtype) for dtype in DTYPES]
CASES += [pytest.param(("gpu", dtype), marks=pytest.mark.gpu) for dtype in DTYPES]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def it(request, tmp_path_factory) -> Step:
    where, dtype = request.param
    return Step(where, tmp_path_factory.mktemp("step"), dtype)


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
    assert len(errors) == 2 + 12 * CONFIG.n_layer + 2
    wrong = {name: error for name, error in errors.items() if not error < it.bound}
    assert not wrong


def test_rows_of_tokens_that_are_not_there_have_the_classifiers_gradient_alone(it):
    want = dict(it.parameters())["transformer.wte.weight"].grad[90:]
    assert relative_error(it.got["gradient.wte.weight"][90:], want) < it.bound


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


def test_the_same_step_again_is_no_outlier(it):
    """Of values that are all alike, z is 0; before the window was full, there was none."""
    norm = it.got["results"][MICRO_STEPS]
    assert it.got["results"][MICRO_STEPS + 1 :].tolist() == pytest.approx(
        [math.nan, math.nan, 0.0], nan_ok=True
    )
    assert it.got["verdict"].tolist() == [norm, 0.0, 0.0, 0.0]


def assert_same_bits(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> None:
    """NaN, too."""
    assert got.keys() == want.keys()
    assert all(
        torch.equal(got[name].view(torch.int32), want[name].view(torch.int32)) for name in got
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_races_and_the_order_of_threads_does_not_matter(tmp_path, dtype):
    it = Step("simulator", tmp_path, dtype)
    run("race", tmp_path, dtype)
    again = load_file(tmp_path / "out.safetensors")
    assert_same_bits(again, it.got)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gpu_computes_the_same_bits_twice(tmp_path, dtype):
    it = Step("gpu", tmp_path, dtype)
    run("gpu", tmp_path, dtype)
    again = load_file(tmp_path / "out.safetensors")
    assert_same_bits(again, it.got)
