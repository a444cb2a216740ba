"""What the tests of the trainer without Python and torch share: sizes, tokens, a checkpoint."""

import csv
import math
import os
import re
import struct
import subprocess
from pathlib import Path

import pytest
import torch
from models import checkpoint
from models.gpt2 import GPT2, TORCH_OPS, Config
from safetensors.torch import load_file

from build_tools import cuda, settings, simulator, train
from build_tools.settings import BuildError
from demos.train_gpt2 import prepare

VOCABULARY, LENGTH = 61, 16
DTYPES = {"float32": (torch.float32, 2**-24), "bfloat16": (torch.bfloat16, 2**-9)}  # unit roundoff
PROMPT = [3, 41, 7, 7, 60, 0, 12, 33, 58, 1, 2, 19]
CONFIG = Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2)
RECIPE = f"--length {LENGTH} --batch 2 --lr 0.01 --dtype float32".split()
SMALL = [*f"--vocabulary {VOCABULARY} --layers 1 --heads 1 --width 16".split(), *RECIPE]


def build(source: Path, where: str) -> Path:
    """A program on the trainer's parts: in the simulator, in its race mode, or for the GPU."""
    if where == "gpu":
        try:
            return train.build_program(source, cuda.tests_toolkit(), settings.PACKAGE)
        except BuildError as error:
            pytest.skip(str(error))
    library = {"simulator": simulator.LIBRARY, "race": simulator.RACE_LIBRARY}[where]
    if not (settings.PACKAGE / "lib" / library).is_file():
        pytest.skip("the simulator is not built")
    return train.build_program(source, None, settings.PACKAGE, race=where == "race")


def write_tokens(path: Path, tokens: torch.Tensor, vocabulary: int = VOCABULARY) -> Path:
    prepare.write_tokens(path, tokens, vocabulary)
    return path


def read_tokens(path: Path) -> torch.Tensor:
    """Of a file of uint16."""
    content = path.read_bytes()
    magic, version, count = struct.unpack("<3i", content[:12])
    assert (magic, version) == (20240520, 1)
    tokens = torch.frombuffer(bytearray(content[1024:]), dtype=torch.uint16).long()
    assert len(tokens) == count
    return tokens


def make_checkpoint(folder: Path, config: Config = CONFIG, deviation: float = 0.0) -> GPT2:
    """A checkpoint of transformers' names, and its model.

    Its weights are GPT-2's first ones; or of a deviation where all terms of the formula count, and
    logits differ.
    """
    torch.manual_seed(5)
    model = GPT2(config, TORCH_OPS)
    model.initialize()
    with torch.no_grad():
        for name, parameter in model.named_parameters() if deviation else ():
            parameter.normal_(float("ln_" in name and name.endswith("weight")), deviation)
    names = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")
    folder.mkdir()
    entries = {name: getattr(config, name) for name in names}
    checkpoint.write_json(folder / "config.json", {"model_type": "gpt2", **entries})
    checkpoint.write_tensors(folder / "model.safetensors", model.state_dict())
    return model


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "log.csv").open() as file:
        return list(csv.DictReader(file))


def column(out: Path, name: str) -> list[str]:
    return [row[name] for row in rows(out) if row[name]]


def outcome(out: Path, step: int) -> list[object]:
    """What a run came to: its checkpoint's bytes, and its losses and norms."""
    folder = out / f"step-{step:08d}"
    files = [(folder / name).read_bytes() for name in ("model.safetensors", "training.safetensors")]
    names = ("loss", "norm", "loss_z", "norm_z", "skipped", "eval_loss")
    return [*files, *(column(out, name) for name in names)]


def succeeded(done: subprocess.CompletedProcess) -> str:
    """Its output."""
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(done: subprocess.CompletedProcess, *parts: object) -> None:
    """One sentence, which names what is wrong, and the exit status 1."""
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.fullmatch(r"train_gpt2: [^\n]+\n", done.stderr), done.stderr
    assert all(str(part) in done.stderr for part in parts), done.stderr


def logits_of(where: str, folder: Path, dtype: str, variables: str = "") -> torch.Tensor:
    """What the sampler has behind each token of PROMPT, of a checkpoint's model."""
    source = Path("tests/demos/train_gpt2_sampler.cpp")
    command = [build(source, where), folder, where, dtype, folder / "out.safetensors", *PROMPT]
    environment = os.environ | ({"KITTENS_SIM": variables} if variables else {})
    succeeded(subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment))
    return load_file(folder / "out.safetensors")["logits"]


def sampled_roundoff(where: str, dtype: str) -> float:
    """Of one rounding in the sampler, for widths of 32 where it is float32.

    A sum of float32 rounds as often as it is long, 4 * 32; in TF32, which a GPU multiplies in,
    factors have 11 bits.
    """
    if dtype == "bfloat16":
        return DTYPES[dtype][1]
    return 2**-11 if where == "gpu" else 2**-24 * math.sqrt(4 * 32)
