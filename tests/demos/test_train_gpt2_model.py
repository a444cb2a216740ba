"""The trainer without Python and torch: one step's numbers, beside PyTorch in float64."""

import math
import subprocess
from pathlib import Path

import pytest
import torch
from models.gpt2 import GPT2, TORCH_OPS, Config
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

from build_tools import settings, simulator, train

CONFIG = Config(vocab_size=97, n_positions=40, n_embd=64, n_layer=2, n_head=2)
BATCH, MICRO_STEPS, CLIP = 2, 2, 0.5
DTYPES = {"float32": (torch.float32, 2**-24), "bfloat16": (torch.bfloat16, 2**-9)}  # unit roundoff

# A gradient passes through the roundings of the forward and the backward: per block the norms, the
# products, the scores, their exponentials and sums, gelu, the additions, ten or so, and three times
# that with the backward's two products for each of the forward's. They are independent, and add up
# as a random walk does.
ROUNDINGS = 3 * (10 * CONFIG.n_layer + 1)
LONGEST_SUM = 4 * CONFIG.n_embd


def relative_bound(dtype: str) -> float:
    """Of the root mean square of a tensor's errors, by that of its values.

    Sums are float32: in float32 a product rounds as often as its sum is long.
    """
    rounding = DTYPES[dtype][1]
    return rounding * math.sqrt(ROUNDINGS * (LONGEST_SUM if dtype == "float32" else 1))


@pytest.fixture(scope="module")
def probe() -> Path:
    return build(race=False)


def build(*, race: bool) -> Path:
    library = simulator.RACE_LIBRARY if race else simulator.LIBRARY
    if not (settings.PACKAGE / "lib" / library).is_file():
        pytest.skip("the simulator is not built")
    source = Path("tests/demos/train_gpt2_probe.cpp")
    return train.build_program(source, None, settings.PACKAGE, race=race)


def run(probe: Path, folder: Path, dtype: str, race: bool = False) -> None:
    """From in.safetensors to out.safetensors."""
    sizes = (97, CONFIG.n_positions, 64, 2, 2, BATCH, MICRO_STEPS, CLIP)
    files = (folder / "in.safetensors", folder / "out.safetensors")
    done = subprocess.run(
        [*map(str, (probe, *files, int(race), dtype, *sizes))],
        capture_output=True,
        text=True,
        timeout=120,
        env={"KITTENS_SIM": "random:5,race"} if race else {},
    )
    assert done.returncode == 0, done.stderr


class Step:
    """What the trainer and PyTorch make of the same weights and tokens."""

    def __init__(self, probe: Path, folder: Path, dtype: str):
        torch.manual_seed(0)
        kept = DTYPES[dtype][0]
        self.model = GPT2(CONFIG, TORCH_OPS)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():  # all terms of the formula count
                parameter.normal_(0.0, 0.15)
                if "ln_" in name and name.endswith("weight"):
                    parameter.add_(1.0)
                parameter.copy_(parameter.to(kept))
        self.model.double()
        self.names = [name.removeprefix("transformer.") for name, _ in self.parameters()]
        tokens = torch.randint(0, 90, (MICRO_STEPS, BATCH, CONFIG.n_positions + 1))
        state = {
            n: p.detach().float() for n, (_, p) in zip(self.names, self.parameters(), strict=True)
        }
        save_file({**state, "tokens": tokens.float()}, folder / "in.safetensors")
        self.folder, self.before = folder, state
        run(probe, folder, dtype)
        self.got = load_file(folder / "out.safetensors")
        self.logits, self.losses = [], []
        for batch in tokens:
            self.logits.append(self.model(batch[:, :-1]).flatten(0, 1))
            loss = cross_entropy(self.logits[-1], batch[:, 1:].flatten())
            (loss / MICRO_STEPS).backward()
            self.losses.append(loss.item())

    def parameters(self):
        return list(self.model.named_parameters())


@pytest.fixture(scope="module", params=DTYPES)
def step(request, probe, tmp_path_factory) -> tuple[str, Step]:
    return request.param, Step(probe, tmp_path_factory.mktemp("step"), request.param)


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


def test_logits_and_losses(step):
    dtype, it = step
    got = it.got["logits"]
    assert relative_error(got[:, : CONFIG.vocab_size], it.logits[0].detach()) < relative_bound(
        dtype
    )
    assert not got[:, CONFIG.vocab_size :].any()  # the embedding's padding
    rows = BATCH * CONFIG.n_positions
    for loss, want in zip(it.got["results"][:MICRO_STEPS] / rows, it.losses, strict=True):
        assert abs(float(loss) - want) < relative_bound(dtype) * float(
            it.logits[0].detach().abs().max()
        )


def test_every_gradient(step):
    dtype, it = step
    errors = {
        name: relative_error(it.got[f"gradient.{name}"], parameter.grad)
        for name, (_, parameter) in zip(it.names, it.parameters(), strict=True)
    }
    assert len(errors) == 2 + 12 * CONFIG.n_layer + 2
    wrong = {name: error for name, error in errors.items() if not error < relative_bound(dtype)}
    assert not wrong


def test_rows_of_tokens_that_are_not_there_have_the_classifiers_gradient_alone(step):
    dtype, it = step
    want = dict(it.parameters())["transformer.wte.weight"].grad[90:]
    assert relative_error(it.got["gradient.wte.weight"][90:], want) < relative_bound(dtype)


def test_two_updates_are_adamws(step):
    """From the trainer's own gradients: what the update adds in error is its own.

    A weight is rounded to float32 twice, and two steps of 0.01 and 0.02 have a handful of float32
    roundings each (the clipped gradient, moments, root, quotient).
    """
    dtype, it = step
    params = [torch.nn.Parameter(it.before[name].double()) for name in it.names]
    matrices = [p for p in params if p.dim() > 1]
    vectors = [p for p in params if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    gradients = [it.got[f"gradient.{name}"].double() for name in it.names]
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
    assert norm > CLIP
    assert abs(float(it.got["results"][-1]) - norm) < 2**-20 * norm
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
        assert torch.equal(it.got[f"rounded.{name}"], got.to(DTYPES[dtype][0]).float()), name


def test_nothing_races_and_the_order_of_threads_does_not_matter(step):
    dtype, it = step
    run(build(race=True), it.folder, dtype, race=True)
    again = load_file(it.folder / "out.safetensors")
    assert all(torch.equal(again[name], values) for name, values in it.got.items())
