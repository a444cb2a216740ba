"""demos/train_gpt on several ranks: each way's losses are those of one process."""

import json
import math
import os
import signal
from pathlib import Path

import pytest
import torch
import train as program
from safetensors.torch import load_file

from tests.tools.ranks import run_ranks

# Without dropout: ranks draw other random numbers than one process.
SMALL = (
    "--vocab 301 --layers 2 --heads 4 --width 32 --length 32 --batch 8 --micro-batch 4 --lr 0.01 "
    "--warmup 5 --steps 6 --eval-every 3 --log-every 3 --eval-tokens 1024 --dropout 0"
).split()
WAYS = program.parallel.WAYS


def log(out, key):
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return {line["step"]: line[key] for line in lines if key in line}


def test_each_way_and_going_on_in_another(text, tmp_path):
    given = [*SMALL, "--data", str(text)]
    assert program.main([*given, "--device", "cpu", "--out", str(tmp_path / "alone")]) == 0
    run_ranks("tests.demos.train_ranks", 2, "each", str(tmp_path), "float32", *given, seconds=120)
    for way in WAYS:
        for key in ("loss", "evaluation_loss"):
            want, got = log(tmp_path / "alone", key), log(tmp_path / way, key)
            got = {step: got[step] for step in got if key == "loss" or step > 1}
            assert list(got) == list(want), way
            # As in test_gpt2: some 1000 fp32 additions stand behind a loss.
            assert list(got.values()) == pytest.approx(list(want.values()), rel=1e-4), way
    ends = [next((tmp_path / name).glob("step-*")) for name in ("alone", *WAYS)]
    assert {end.name for end in ends} == {"step-000006"}
    names = [sorted(path.name for path in end.iterdir()) for end in ends]
    assert names == names[:1] * len(names)


MASTER = ".master_param"


def state_of(out):
    """The weights and the optimizer's state of a run's end."""
    (end,) = out.glob("step-*")
    return load_file(end / "model.safetensors"), load_file(end / "training.safetensors")


def distance(state, other):
    """Between the running means of all gradients."""
    return math.hypot(*((state[k] - other[k]).norm() for k in state if k.endswith(".exp_avg")))


def test_each_way_in_bfloat16_has_float32_weights_in_the_optimizer(text, tmp_path, monkeypatch):
    """As on a GPU. A way's gradients differ from another's by roundings of bfloat16, as those of
    one process do from float32's: by no more than these two together."""
    given = [*SMALL, "--data", str(text)]
    monkeypatch.setattr(program.Run, "sample", lambda _run: "")
    alone = {}
    for dtype in ("float32", "bfloat16"):
        monkeypatch.setattr(program, "dtype_of", lambda _, dtype=dtype: getattr(torch, dtype))
        out = tmp_path / dtype
        assert program.main([*given, "--device", "cpu", "--out", str(out)]) == 0
        alone[dtype] = state_of(out)[1]
    room = 2 * distance(alone["float32"], alone["bfloat16"])
    want = log(tmp_path / "bfloat16", "loss")
    run_ranks("tests.demos.train_ranks", 2, "each", str(tmp_path), "bfloat16", *given, seconds=120)
    for way in WAYS:
        got = log(tmp_path / way, "loss")
        # A loss is a mean over 256 tokens, each of which bfloat16 rounds: one of 2⁻⁹, or less.
        assert list(got.values()) == pytest.approx(list(want.values()), rel=2**-10), way
        weights, state = state_of(tmp_path / way)
        assert state.keys() == alone["bfloat16"].keys(), way
        masters = {k.split(".", 1)[1]: v for k, v in state.items() if k.endswith(MASTER)}
        assert {k.removesuffix(MASTER) for k in masters} == set(weights), way
        for name, weight in weights.items():
            master = masters[name + MASTER]
            assert (weight.dtype, master.dtype) == (torch.bfloat16, torch.float32), way
            assert torch.equal(master.bfloat16(), weight), (way, name)
            assert not torch.equal(master, weight.float()), (way, name)
        assert distance(state, alone["bfloat16"]) < room, way


def test_each_way_goes_on_in_bfloat16_as_if_it_had_not_been_stopped(text, tmp_path):
    """To the bit: the float32 weights come back, and not what they are rounded to."""
    given = [*SMALL, "--data", str(text), "--steps", "3"]
    run_ranks("tests.demos.train_ranks", 2, "same", str(tmp_path), "bfloat16", *given, seconds=120)
    for way in WAYS:
        whole, resumed = (tmp_path / f"{way}-{how}" for how in ("whole", "resumed"))
        assert log(whole, "loss") == log(resumed, "loss"), way
        for one, other in zip(state_of(whole), state_of(resumed), strict=True):
            kept = [name for name in one if not name.startswith("rng.")]
            assert all(torch.equal(one[name], other[name]) for name in kept), way


def test_a_killed_rank_ends_all_with_one_sentence(text, tmp_path, start_program):
    out = tmp_path / "run"
    arguments = [*SMALL, "--data", text, "--out", out, "--device", "cpu", "--steps", 1000000]
    process = start_program("train_gpt/train.py", *arguments, "--parallel", "ddp", "--ranks", 2)
    for line in process.stdout:
        if line.startswith("step"):
            break
    started = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(started) == 2
    os.kill(int(started[1]), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors == "train: rank 1 was ended by SIGKILL, and so all have ended\n"
    assert not any(Path("/proc", child).exists() for child in started)


def test_an_interrupt_saves(text, tmp_path, start_program):
    out = tmp_path / "run"
    arguments = [*SMALL, "--data", text, "--out", out, "--device", "cpu", "--steps", 1000000]
    process = start_program("train_gpt/train.py", *arguments, "--parallel", "ddp", "--ranks", 2)
    for line in process.stdout:
        if line.startswith("step"):
            break
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    assert f"saved in {out}" in printed
    assert len(list(out.glob("step-*"))) == 1


@pytest.mark.parametrize(
    "more, message",
    [
        ("--ranks 2", "--ranks 2 need --parallel: ddp, fsdp, tensor, context"),
        ("--ranks 3 --parallel ddp", "--micro-batch 4 is not divisible by 3 ranks"),
        ("--ranks 3 --parallel context", "--length 32 is not divisible into 2 chunks for each"),
        ("--ranks 3 --parallel tensor", "--heads and --length must be divisible by 3 ranks"),
        ("--ranks 2 --parallel tensor --dropout 0.1", "--parallel tensor has no dropout"),
        ("--ranks 2 --parallel ddp --compile", "--compile is for one process"),
        ("--ranks 2 --parallel zero", "invalid choice: 'zero'"),
    ],
)
def test_what_cannot_be_shared(more, message, tmp_path, capsys):
    with pytest.raises(SystemExit):
        program.main([*SMALL, "--device", "cpu", "--out", str(tmp_path / "run"), *more.split()])
    assert message in capsys.readouterr().err
