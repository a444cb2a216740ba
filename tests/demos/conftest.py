"""What the tests of the demos share: the import path, a tiny model, a way to run a program."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

DEMOS = Path(__file__).resolve().parents[2] / "demos"
sys.path[:0] = [
    str(DEMOS / folder)
    for folder in (
        "",
        "custom_kernel",
        "generate",
        "linear_models",
        "llama_block",
        "lolcats",
        "serve",
        "train_gpt",
    )
]

TEXT = "".join(
    f"def add_{a}_{b}(x):\n    return x + {a} * {b}\n\n" for a in range(40) for b in range(40)
)


@pytest.fixture(autouse=True)
def one_thread():
    """The tests' models are too small for more: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def text(tmp_path):
    """A file of text to train on."""
    path = tmp_path / "text.py"
    path.write_text(TEXT)
    return path


@pytest.fixture
def tiny_config():
    from models.gpt2 import Config

    return Config(vocab_size=97, n_positions=48, n_embd=64, n_layer=2, n_head=2)


@pytest.fixture
def tiny_model(tiny_config):
    """Weights of a size that makes every term of the formula count."""
    from models.gpt2 import GPT2

    return random_weights(GPT2(tiny_config)).eval()


@pytest.fixture(scope="session")
def tokenizer():
    from models import data

    return data.train_tokenizer([TEXT], 300)


@pytest.fixture
def checkpoint_folder(tmp_path, tokenizer):
    """A sound checkpoint, for a test to damage."""
    from models import checkpoint
    from models.gpt2 import GPT2, Config

    config = Config(tokenizer.get_vocab_size(), n_positions=32, n_embd=32, n_layer=1, n_head=2)
    checkpoint.save(tmp_path / "sound", random_weights(GPT2(config)), tokenizer)
    return tmp_path / "sound"


@pytest.fixture(scope="session")
def start_program():
    """Starts demos/<path> with arguments; returns the running process."""

    def start(path: str, *arguments: object) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, str(DEMOS / path), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
            # What a shell starts in the background ignores interrupts, and so do its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    return start


@pytest.fixture(scope="session")
def run_program(start_program):
    """Runs demos/<path> with arguments, as a user would; returns the finished process."""

    def run(path: str, *arguments: object) -> subprocess.CompletedProcess:
        process = start_program(path, *arguments)
        output, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    return run


@pytest.fixture(scope="session")
def trainer() -> Path:
    """The trainer without Python and torch, in the simulator."""
    from build_tools import settings, simulator, train

    if not (settings.PACKAGE / "lib" / simulator.LIBRARY).is_file():
        pytest.skip("the simulator is not built")
    return train.build(simulated=True)


@pytest.fixture
def run_trainer(trainer):
    """Runs it with arguments, and variables; returns the finished process."""

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess:
        command = [trainer, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, env=variables)

    return run


@pytest.fixture
def tokens_file(tmp_path) -> Path:
    """Tokens for the trainer, of eight sequences."""
    from trainers import LENGTH, VOCABULARY, write_tokens

    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, VOCABULARY, (8 * LENGTH + 1,), generator=generator)
    return write_tokens(tmp_path / "train.bin", tokens)


def random_weights(model):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.15, generator=generator)
            if "ln_" in name and name.endswith("weight"):
                parameter.add_(1.0)
    return model
