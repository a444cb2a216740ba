"""The training program: it learns, it resumes bit for bit, it names what is wrong."""

import json
import shutil
import signal

import pytest
import state
import torch
import train as program
from models import checkpoint, data

SMALL = (
    "--vocab 300 --layers 1 --heads 2 --width 32 --length 32 --batch 8 --micro-batch 4 --lr 0.01 "
    "--warmup 5 --steps 24 --eval-every 8 --log-every 3 --eval-tokens 1024 --device cpu"
).split()


def run(text, out, *more):
    return program.main([*SMALL, "--data", str(text), "--out", str(out), *map(str, more)])


def log(out, key):
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return {line["step"]: line[key] for line in lines if key in line}


def test_the_loss_falls_and_the_best_model_is_exported(text, tmp_path, capsys):
    out, export = tmp_path / "run", tmp_path / "export"
    assert run(text, out, "--export", export, "--steps", 40) == 0
    losses, evaluations = log(out, "loss"), log(out, "evaluation_loss")
    assert list(losses) == list(range(1, 41)) and list(evaluations) == [8, 16, 24, 32, 40]
    assert losses[40] < 0.6 * losses[1] and evaluations[40] < 0.6 * losses[1]
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "40 steps" in printed and any("⠁" <= c <= "⣿" for c in printed)  # the curve
    assert "tokens/s" in printed and "s left" in printed and "evaluation loss" in printed
    model = checkpoint.load(export)
    assert checkpoint.load_tokenizer(export, model.config).get_vocab_size() == 300
    assert model.config.n_positions == 32
    assert model.config.vocab_size == 304  # of 16 bytes in 16 bits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resume_is_bitwise_exact(dtype, text, tmp_path, monkeypatch):
    """Dropout, the order of the data, the schedule and the optimizer go on as if never stopped."""
    monkeypatch.setattr(program, "dtype_of", lambda device: dtype)  # bfloat16: as on a GPU
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(text, whole) == 0
    # Stopped in the middle of an interval, as --minutes or SIGINT may do, and started again.
    options = program.parse_options([*SMALL, "--data", str(text), "--out", str(parts)])
    stopped = program.Run(options)
    stopped.model.train()
    for _ in range(11):
        stopped.train_step()
        if stopped.step % 8 == 0:
            stopped.evaluate()
    stopped.save()
    stopped.log({"step": 12, "loss": -1.0})  # of a step after the last save: it is run again
    with (parts / "log.jsonl").open("a") as file:
        file.write('{"step": 1')  # the power went
    torch.manual_seed(999)
    assert program.main(["--out", str(parts), "--resume", "--device", "cpu"]) == 0
    assert log(parts, "loss") == log(whole, "loss")
    assert log(parts, "evaluation_loss") == log(whole, "evaluation_loss")
    for name in ("model", "training"):
        a, b = (state.newest(out) / f"{name}.safetensors" for out in (whole, parts))
        assert a.read_bytes() == b.read_bytes()


def test_the_same_seed_gives_the_same_losses(text, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert run(text, tmp_path / name, "--seed", seed, "--steps", 6) == 0
    a, b, c = (log(tmp_path / name, "loss") for name in "abc")
    assert a == b and a != c


def test_gradient_accumulation_is_the_same_step(text, tmp_path):
    for micro in (8, 2):
        out = tmp_path / f"micro{micro}"
        assert run(text, out, "--micro-batch", micro, "--dropout", 0, "--steps", 6) == 0
    a, b = (log(tmp_path / f"micro{micro}", "loss") for micro in (8, 2))
    # As in test_gpt2: some 1000 fp32 additions stand behind a loss.
    assert list(a.values()) == pytest.approx(list(b.values()), rel=1e-4)


def test_sigint_saves_and_minutes_stop(text, tmp_path, start_program):
    out = tmp_path / "run"
    arguments = [*SMALL, "--data", str(text), "--out", str(out), "--steps", "1000000"]
    process = start_program("train_gpt/train.py", *arguments)
    for line in process.stdout:
        if line.startswith("step"):
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    step = state.read_facts(state.newest(out))["step"]
    assert list(log(out, "loss")) == list(range(1, step + 1))
    resume = ["--out", str(out), "--resume", "--device", "cpu", "--minutes", "0.01"]
    assert program.main(resume) == 0
    assert step < state.read_facts(state.newest(out))["step"] < 1000000
    assert len(list(out.glob("step-*"))) == 1


def test_a_run_resumes_on_its_device(text, tmp_path, capsys):
    out = tmp_path / "run"
    assert run(text, out) == 0
    path = state.newest(out) / "training.json"
    path.write_text(path.read_text().replace('"device": "cpu"', '"device": "cuda"'))
    assert program.main(["--out", str(out), "--resume", "--device", "cpu"]) == 2
    assert "made on cuda, got cpu; resume it with --device cuda" in capsys.readouterr().err


def test_weight_decay_is_for_matrices(tiny_model):
    options = program.parse_options(SMALL)
    decayed, plain = program.make_optimizer(tiny_model, options).param_groups
    assert decayed["weight_decay"] == 0.1 and plain["weight_decay"] == 0.0
    assert {p.dim() for p in decayed["params"]} == {2} and {p.dim() for p in plain["params"]} == {1}


def test_the_schedule_warms_up_and_ends_at_a_tenth():
    options = program.parse_options([*SMALL, "--warmup", "10", "--steps", "100", "--lr", "1"])
    rates = [program.learning_rate(step, options) for step in range(101)]
    assert rates[0] == 0.1 and rates[9] == rates[10] == 1.0 and abs(rates[100] - 0.1) < 1e-12
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_an_epoch_is_every_sequence_once():
    batches = data.Batches(torch.arange(1000), batch=7, length=10, seed=0)
    epoch = torch.cat([batches[i] for i in range(15)])[: batches.per_epoch]
    assert epoch.shape == (98, 11) and len(epoch[:, 0].unique()) == 98
    assert torch.equal(epoch[:, 1:], epoch[:, :-1] + 1)
    assert torch.equal(batches[20], data.Batches(torch.arange(1000), 7, 10, 0)[20])
    assert data.Batches(torch.arange(30), batch=9, length=10, seed=0)[3].shape == (9, 11)


def test_documents_and_their_split(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.txt").write_text("1" * 60)
    (tmp_path / "two.txt").write_text("2" * 40)
    (tmp_path / "noise.bin").write_bytes(b"\xff\xfe\x00")
    documents = data.read_documents(str(tmp_path))
    assert sorted(documents) == ["1" * 60, "2" * 40]
    assert data.read_documents(str(tmp_path / "**" / "one.*")) == ["1" * 60]
    train, held_out = data.split(documents, 0.1)
    assert "".join(train + held_out) == "".join(documents)
    assert sum(map(len, held_out)) == 10


@pytest.mark.parametrize(
    ("sizes", "held_out"),
    [
        ((40, 30, 20, 10), 1),  # where they would be cut: behind 90 of 100 characters
        ((40, 30, 19, 11), 1),  # in the third, 1 behind its end
        ((40, 30, 16, 14), 1),
        ((40, 41, 2, 6, 8, 3), 2),  # 11 are 1 too many, 3 are 7 too few
        ((90, 1, 9), 2),
        ((5, 95), 1),
        ((95, 5), 1),
        ((1, 1, 98), 1),
    ],
)
def test_held_out_are_whole_documents(sizes, held_out):
    documents = [chr(97 + number) * size for number, size in enumerate(sizes)]
    train, rest = data.split_between(documents, 0.1)
    assert train + rest == documents
    assert len(rest) == held_out


def test_of_one_document_the_end_is_held_out():
    assert data.split_between(["abcdefghij"], 0.2) == (["abcdefgh"], ["ij"])


def test_the_default_text_is_the_standard_library():
    documents = data.read_documents(None)
    assert sum(map(len, documents)) > 2_000_000
    assert documents == data.read_documents(None)
    assert any("class Counter(dict)" in document for document in documents)


def test_tokens_are_the_text(tokenizer, text):
    documents = ["def f(x):\n    return 'ü'\n", "", text.read_text()]
    tokens = data.encode(tokenizer, documents).tolist()
    assert tokens.count(tokenizer.token_to_id(checkpoint.END_OF_TEXT)) == 3
    assert tokenizer.decode(tokens) == "".join(documents)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such file"),
        (b"", "there is no UTF-8 text there"),
        (b"\xff\xfe\x00\x01", "there is no UTF-8 text there"),
        (b"short", "are too few for sequences of 32"),
    ],
    ids=["missing", "empty", "binary", "short"],
)
def test_bad_text_exits_2_with_a_sentence(tmp_path, capsys, content, message):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    assert run(path, tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert error.startswith("train: --data") and message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--steps", "0"],
        ["--lr", "nan"],
        ["--dropout", "1.5"],
        ["--width", "33"],
        ["--batch", "8", "--micro-batch", "3"],
        ["--vocab", "10"],
        ["--device", "toaster"],
    ],
    ids=" ".join,
)
def test_bad_arguments_exit_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        program.main([*SMALL, *arguments])
    assert caught.value.code == 2 and "train: error: " in capsys.readouterr().err


def test_a_run_is_not_overwritten_nor_resumed_from_nothing(text, tmp_path, capsys):
    out = tmp_path / "run"
    assert program.main(["--out", str(out), "--resume"]) == 2
    assert "there is no saved run to resume" in capsys.readouterr().err
    assert run(text, out, "--steps", 2) == 0
    assert program.main(["--out", str(out), "--resume", "--length", "64"]) == 2
    assert "has 32 positions, --length is 64" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(text, out)
    assert "holds a run" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["truncated", "facts", "text", "missing"])
def test_a_damaged_state_is_one_error(text, tmp_path, capsys, damage):
    out = tmp_path / "run"
    assert run(text, out, "--steps", 2) == 0
    folder = state.newest(out)
    tensors = folder / "training.safetensors"
    if damage == "truncated":
        tensors.write_bytes(tensors.read_bytes()[:-10])
    elif damage == "facts":
        facts = json.loads((folder / "training.json").read_text())
        (folder / "training.json").write_text(json.dumps(facts | {"step": "2"}))
    elif damage == "text":
        text.write_text(text.read_text() + "more\n" * 2000)
    else:
        shutil.rmtree(folder)
    capsys.readouterr()
    assert program.main(["--out", str(out), "--resume", "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("train: ") and error.count("\n") == 1
