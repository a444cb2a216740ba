"""One step of the trainer without Python and torch, and the same by PyTorch in float64."""

import math
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch
from models.gpt2 import GPT2, TORCH_OPS, Config
from plain_llama import LlamaSizes, PlainLlama
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from trainers import DTYPES, build

SOURCE = Path("tests/demos/train_gpt2_probe.cpp")
CLIP = 0.5
TF32 = 2**-11  # in which a GPU multiplies float32: factors have 11 bits


@dataclass(frozen=True)
class Problem:
    """A model, and what it is given.

    Attributes:
        config: Of GPT-2, or of Llama's shape.
        deviation: Of the weights: what comes out of a product is as large as what went in, or so.
            More of it, twice where two values are multiplied, and errors would grow from layer to
            layer.
        batch: Sequences, each of as many tokens as there are positions.
        micro_steps: How many batches are a step.
        device: Where PyTorch computes.
    """

    config: Config | LlamaSizes
    deviation: float
    batch: int
    micro_steps: int
    device: str = "cpu"

    @property
    def kind(self) -> str:
        return "llama" if isinstance(self.config, LlamaSizes) else "gpt2"

    @property
    def roundings(self) -> int:
        """Those that a gradient passes through, of the forward and the backward.

        Per block the norms, the products, the scores, their exponentials and sums, gelu, the
        additions, ten or so, and three times that with the backward's two products for each of the
        forward's. They are independent, and add up as a random walk does. Llama's shape turns q and
        k, and multiplies two hidden values: two more.
        """
        return 3 * ((12 if self.kind == "llama" else 10) * self.config.n_layer + 1)

    def bound(self, where: str, dtype: str) -> float:
        """Of the root mean square of a tensor's errors, by that of its values.

        Sums are float32: where factors are, too, a product rounds as often as its sum is long.
        """
        own = DTYPES[dtype][1]
        if dtype == "float32" and where == "simulator":
            return own * math.sqrt(self.roundings * 4 * self.config.n_embd)
        return max(own, TF32 if dtype == "float32" else 0) * math.sqrt(self.roundings)

    def sizes(self) -> tuple[float, ...]:
        """The probe's arguments."""
        c = self.config
        more = (c.key_heads, c.hidden) if self.kind == "llama" else ()
        sizes = (c.vocab_size, c.n_positions, c.n_embd, c.n_layer, c.n_head)
        return (*sizes, self.batch, self.micro_steps, CLIP, *more)


def run(where: str, problem: Problem, folder: Path, dtype: str) -> None:
    """From in.safetensors to out.safetensors."""
    files = (folder / "in.safetensors", folder / "out.safetensors")
    variables = {"KITTENS_SIM": "random:5,race"} if where == "race" else {}
    done = subprocess.run(
        [*map(str, (build(SOURCE, where), *files, where, dtype, *problem.sizes()))],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | variables,
    )
    assert done.returncode == 0, done.stderr


class Step:
    """What the trainer and PyTorch make of the same weights and tokens."""

    def __init__(self, where: str, problem: Problem, folder: Path, dtype: str):
        self.problem, self.dtype = problem, DTYPES[dtype][0]
        self.where, self.folder, self.name = where, folder, dtype
        self.bound = problem.bound(where, dtype)
        config = problem.config
        torch.manual_seed(0)
        self.model = GPT2(config, TORCH_OPS) if problem.kind == "gpt2" else PlainLlama(config)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():  # all terms of the formula count
                parameter.normal_(0.0, problem.deviation)
                if ("ln_" in name and name.endswith("weight")) or "norm" in name:
                    parameter.add_(1.0)
                parameter.copy_(parameter.to(self.dtype))
        self.names = [name.removeprefix("transformer.") for name, _ in self.parameters()]
        self.used = config.vocab_size - 7  # tokens from here on are in no sequence
        shape = (problem.micro_steps, problem.batch, config.n_positions + 1)
        tokens = torch.randint(0, self.used, shape)
        if problem.micro_steps > 1:  # nothing of it may be left from the batch before
            tokens[1, 0, 3] = tokens[0, 0, 0]
        self.before = {
            name: parameter.detach().clone()
            for name, (_, parameter) in zip(self.names, self.parameters(), strict=True)
        }
        save_file({**self.before, "tokens": tokens.float()}, folder / "in.safetensors")
        run(where, problem, folder, dtype)
        self.got = load_file(folder / "out.safetensors")
        self.model.double()
        if problem.device != "cpu":
            self.model.to(problem.device)
        self.losses = []
        for number, batch in enumerate(tokens.to(problem.device)):
            logits = self.model(batch[:, :-1]).flatten(0, 1)
            loss = cross_entropy(logits, batch[:, 1:].flatten())
            (loss / problem.micro_steps).backward()
            self.losses.append(loss.item())
            if number == 0:
                self.logits = logits.detach().cpu()

    def parameters(self):
        return list(self.model.named_parameters())

    def again(self) -> dict[str, torch.Tensor]:
        where = "race" if self.where == "simulator" else self.where
        run(where, self.problem, self.folder, self.name)
        return load_file(self.folder / "out.safetensors")

    def check_logits_and_losses(self) -> None:
        got, vocabulary = self.got["logits"], self.problem.config.vocab_size
        assert relative_error(got[:, :vocabulary], self.logits) < self.bound
        assert not got[:, vocabulary:].any()  # the embedding's padding
        rows, count = self.problem.batch * self.problem.config.n_positions, self.problem.micro_steps
        for loss, want in zip(self.got["results"][:count] / rows, self.losses, strict=True):
            assert abs(float(loss) - want) < self.bound * float(self.logits.abs().max())

    def check_every_gradient(self) -> None:
        errors = {
            name: relative_error(self.got[f"gradient.{name}"], parameter.grad.cpu())
            for name, (_, parameter) in zip(self.names, self.parameters(), strict=True)
        }
        layers = self.problem.config.n_layer
        is_gpt2 = self.problem.kind == "gpt2"
        assert len(errors) == (2 + 12 * layers + 2 if is_gpt2 else 2 + 9 * layers)
        wrong = {name: error for name, error in errors.items() if not error < self.bound}
        assert not wrong


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())
