"""The trainer without Python and torch, of several processes: the same as one, and one sentence
where something is wrong. NCCL is tests/demos/nccl_of_processes.cpp, beside the simulator."""

import math
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from models.gpt2 import Config
from safetensors.torch import load_file
from trainers import (
    LENGTH,
    SMALL,
    build,
    column,
    make_checkpoint,
    outcome,
    refused,
    rows,
    succeeded,
)

from build_tools import compile, cxx, toolchain
from build_tools.settings import ROOT

# Of 3 ranks, no layer begins at a multiple of their parts.
SIZES = "--vocabulary 130 --layers 2 --width 40 --heads 5 --steps 5 --warmup 2".split()
STEP = "step-00000005"


@pytest.fixture(scope="session")
def nccl() -> Path:
    """A library with what the trainer calls of NCCL, for processes without a GPU."""
    flags = ("-I", "demos/train_gpt2")
    objects = compile.run([cxx.job(Path("tests/demos/nccl_of_processes.cpp"), flags=flags)], "")
    job = compile.Job(
        name="tests/demos/nccl_of_processes",
        command=(*cxx.shared_library("nccl_of_processes.so"), "{inputs}", cxx.LIBRARY),
        tool=toolchain.find_compiler().name,
        suffix=".so",
        inputs=(objects[0].output,),
        depends=False,
    )
    return ROOT / compile.run([job], "")[0].output


@pytest.fixture
def start(trainer, tokens_file, nccl):
    """The start of a command: so many ranks, on the tokens."""

    def command(ranks: int, *arguments: object) -> list[str]:
        words = [trainer, "--train", tokens_file, *SMALL, *SIZES, "--ranks", ranks, "--nccl", nccl]
        return [*map(str, words), *map(str, arguments)]

    return command


@pytest.fixture
def train(start):
    """Trains with so many ranks; returns the finished process."""

    def run(ranks: int, *arguments: object, **variables: str) -> subprocess.CompletedProcess:
        command = start(ranks, *arguments)
        return subprocess.run(command, capture_output=True, text=True, timeout=100, env=variables)

    return run


RECIPES = {  # and how many ranks
    "gpt2": (3, "--dtype float32"),
    "llama": (2, "--dtype float32 --model llama --key-heads 1 --graph"),
    "micro-batches": (2, "--dtype float32 --recompute --batch 1"),
    "bfloat16": (3, "--dtype bfloat16"),
    "one-layer": (3, "--dtype float32 --layers 1"),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_ranks_compute_what_one_does(train, tmp_path, recipe):
    """All sequences of an update are the same: sums differ in their order.

    Of float32 the bounds are those of ten steps beside PyTorch, in test_train_gpt2.py. bfloat16
    rounds a gradient once a rank and once in the sum, each time by 2⁻⁹ of it at most; what the
    ranks have is larger than the sum where it cancels: 4 is for that.
    """
    ranks, words = RECIPES[recipe]
    more = ["--total-batch", 12 * LENGTH, *words.split(), "--lr", 0.02, "--epsilon", 1e-4]
    more += ["--eval", tmp_path / "train.bin", "--eval-every", 3, "--eval-batches", 1]
    more += ["--outlier-window", 2, "--skip-norm-z", 1e3]
    rounding = 2**-24 * math.sqrt(3 * 21 * 4 * 40)
    rounding, loss = (4 * 2**-9, 2**-8) if recipe == "bfloat16" else (rounding, 2**-17)
    outs = [tmp_path / "one", tmp_path / "several"]
    succeeded(train(1, "--out", outs[0], *more))
    text = succeeded(train(ranks, "--out", outs[1], *more))
    assert f"{12 * LENGTH} tokens an update: {ranks} ranks × " in text
    assert "5 steps, in whose loop 0 allocations and 0 synchronisations" in text
    assert [row["step"] for row in rows(outs[1])] == ["1", "2", "3", "3", "4", "5", "5"]
    for name, bound in (("loss", loss), ("eval_loss", loss), ("norm", 4 * math.sqrt(5) * rounding)):
        one, several = ([float(x) for x in column(out, name)] for out in outs)
        assert several == pytest.approx(one, rel=bound), name
    assert_same_checkpoints(outs, 4 * math.sqrt(5) * rounding)


def assert_same_checkpoints(folders: list[Path], bound: float) -> None:
    """Of the last step: each tensor's difference is at most that share of its norm."""
    for name in ("model.safetensors", "training.safetensors"):
        one, several = (load_file(folder / STEP / name) for folder in folders)
        assert one.keys() == several.keys()
        for key, value in one.items():
            assert (value - several[key]).norm() <= bound * value.norm() + 1e-6, (name, key)


def test_a_resumed_and_a_second_run_have_the_same_bits(train, tmp_path):
    more = ["--total-batch", 4 * LENGTH, "--dtype", "bfloat16", "--save-every", 3, "--keep", 9]
    whole, again = tmp_path / "whole", tmp_path / "again"
    succeeded(train(2, "--out", whole, *more))
    succeeded(train(2, "--out", again, *more, KITTENS_SIM="random:7"))
    want = outcome(whole, 5)
    assert outcome(again, 5) == want
    for path in (whole / STEP).iterdir():
        path.unlink()
    (whole / STEP).rmdir()
    succeeded(train(2, "--out", whole, *more, "--resume"))
    assert outcome(whole, 5) == want


def test_another_number_of_ranks_goes_on(train, tmp_path):
    """Of a checkpoint's state each takes its part."""
    more = ["--total-batch", 6 * LENGTH, "--batch", 1, "--save-every", 3, "--keep", 9]
    losses = []
    for name, first, second in (("one", 1, 1), ("three", 3, 2)):
        out = tmp_path / name
        succeeded(train(first, "--out", out, *more, "--steps", 3, "--schedule", "constant"))
        succeeded(train(second, "--out", out, *more, "--schedule", "constant", "--resume"))
        losses.append([float(x) for x in column(out, "loss")])
    assert losses[1] == pytest.approx(losses[0], rel=2**-17)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saving_changes_nothing(train, tmp_path, dtype):
    """It goes through the gradients' memory, of which no backward writes all: not what is behind
    the last parameter, nor, of a model with more positions than a sequence has tokens, theirs."""
    config = Config(130, n_positions=LENGTH + 8, n_embd=40, n_layer=2, n_head=5)
    make_checkpoint(tmp_path / "init", config)
    more = ["--init", tmp_path / "init", "--dtype", dtype, "--total-batch", 6 * LENGTH]
    outcomes = []
    for name, every in (("once", 5), ("each", 1)):
        out = tmp_path / name
        succeeded(train(3, "--out", out, *more, "--save-every", every))
        outcomes.append(outcome(out, 5))
    assert outcomes[0] == outcomes[1]


def test_each_has_its_part_of_the_optimizers_state(train, tmp_path):
    bytes_of = []
    for ranks in (1, 4):
        more = [
            "--batch",
            1,
            "--width",
            192,
            "--heads",
            3,
            "--layers",
            4,
            "--total-batch",
            4 * LENGTH,
        ]
        text = succeeded(train(ranks, "--out", tmp_path / str(ranks), *more, "--steps", 1))
        line = next(line for line in text.splitlines() if line.startswith("optimizer state"))
        bytes_of.append(float(line.split()[2]))
    assert bytes_of[1] == pytest.approx(bytes_of[0] / 4, abs=0.1)  # MiB, of which one digit


# ---- What goes wrong ----------------------------------------------------------------------------


def children(process: subprocess.Popen) -> list[int]:
    """In the order in which they were started: rank 0 first."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


@pytest.fixture
def running(start, tmp_path):
    """A run of two ranks that goes on and on; and its ranks' processes."""
    more = ["--steps", 100000, "--schedule", "constant", "--total-batch", 4 * LENGTH]
    command = start(2, "--out", tmp_path / "out", *more)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while not process.stdout.readline().startswith("step 2/"):
            assert process.poll() is None, process.stderr.read()
        yield process, children(process)
        process.kill()


def has_ended(pid: int) -> bool:
    """Or is about to: its parent may be gone before it."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_ends_all(running, rank):
    process, ranks = running
    os.kill(ranks[rank], signal.SIGKILL)
    output, errors = process.communicate(timeout=60)
    done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    refused(done, f"rank {rank} was ended by signal 9", "so all are")
    assert all(has_ended(pid) for pid in ranks)


def test_ranks_do_not_outlive_who_started_them(running):
    process, ranks = running
    process.kill()
    assert all(has_ended(pid) for pid in ranks)


def test_an_interrupt_saves(running, train, tmp_path):
    process, _ = running
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "interrupted, and saved" in output
    out = tmp_path / "out"
    step = int(next(iter(out.glob("step-*"))).name.removeprefix("step-"))
    assert step == len(column(out, "loss"))
    more = ["--steps", step + 1, "--schedule", "constant", "--total-batch", 4 * LENGTH]
    succeeded(train(2, "--out", out, *more, "--resume"))
    assert (out / f"step-{step + 1:08d}").is_dir()


WRONG = {
    "--nccl=/nowhere.so": "several ranks need NCCL",
    "--init=/nowhere": "/nowhere/config.json",
    "--total-batch=48": "--batch times --length times --ranks (64), got 48",
    "--ranks=0": "--ranks must be 1 to 1024, got 0",
}


@pytest.mark.parametrize("option", WRONG)
def test_what_is_wrong_in_all_is_said_once(train, tmp_path, option):
    refused(train(2, "--out", tmp_path / "out", option), WRONG[option])


def test_a_library_that_is_not_nccl_is_refused(train, tmp_path):
    refused(train(2, "--out", tmp_path / "out", "--nccl", "libm.so.6"), "libm.so.6: has no nccl")


def test_a_digest_tells_matrices_apart_but_not_their_padding():
    """By which the fastest way to a product's same bits is chosen on a GPU."""
    program = build(Path("tests/demos/train_gpt2_digest.cpp"), "simulator")
    lines = succeeded(subprocess.run([program], capture_output=True, text=True)).split()
    assert lines[0] == lines[1] and lines[-1] == "0"
    assert len(set(lines)) == 5


# ---- Two GPUs -----------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs")
@pytest.mark.parametrize("more", [[], ["--graph"]], ids=["launches", "graph"])
def test_two_gpus_compute_what_one_does(tokens_file, tmp_path, more):
    """By NCCL, copy engines and all. bfloat16 as above; of TF32 a factor has 11 bits."""
    from build_tools import train

    program = build(train.MAIN, "gpu")
    environment = train.variables()
    for dtype, rounding in (("float32", 2**-11), ("bfloat16", 2**-9)):
        outs = [tmp_path / f"{dtype}{ranks}" for ranks in (1, 2)]
        for ranks, out in enumerate(outs, 1):
            command = [program, "--train", tokens_file, *SMALL, *SIZES, "--ranks", ranks, *more]
            command += ["--dtype", dtype, "--total-batch", 4 * LENGTH, "--out", out]
            command += ["--lr", 0.02, "--epsilon", 1e-4]
            command = [*map(str, command)]
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
            assert "5 steps, in whose loop 0 allocations and 0" in succeeded(done)
        of_steps = 4 * math.sqrt(5) * 4 * rounding
        for name, bound in (("loss", 10 * rounding), ("norm", of_steps)):
            one, several = ([float(x) for x in column(out, name)] for out in outs)
            assert several == pytest.approx(one, rel=bound), name
        assert_same_checkpoints(outs, of_steps)
