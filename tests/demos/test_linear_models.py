"""The tasks, the costs of a context, and that the demo learns."""

import context
import linear_models as program
import pytest
import tasks
import torch
from models import data

SMALL = "--device cpu --jobs 1 --mixers linear,softmax --width 32 --prompt x --tokens 3".split()


def test_targets_are_the_values_of_the_keys():
    tokens, targets = tasks.recall_batch(3, 5, torch.Generator().manual_seed(1))
    assert tokens.shape == targets.shape == (3, 20)
    assert (targets[:, :10] == -100).all()
    for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        values = dict(zip(row[0:10:2], row[1:10:2], strict=True))
        assert len(values) == 5 and all(v >= tasks.KEYS for v in values.values())
        assert [values[key] for key in row[10:]] == wanted[10:]
        assert sorted(row[10:15]) == sorted(row[15:]) == sorted(values)


def test_no_batch_is_that_of_the_evaluation():
    task = tasks.recall(3, 256)
    (kept, _), *rest = task.held_out
    assert not rest and all(not torch.equal(task.batch(i)[0], kept) for i in range(20))


def test_the_text_is_that_of_the_files(text):
    task, written = tasks.text(str(text), 16, 4), text.read_bytes()
    for tokens, targets in (task.batch(0), task.batch(1), task.held_out[0]):
        for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
            assert bytes([*row, wanted[-1]]) in written and row[1:] == wanted[:-1]


@pytest.mark.parametrize("mixer", ["linear", "hedgehog", "softmax"])
def test_only_softmax_pays_for_the_context(mixer, monkeypatch):
    monkeypatch.setattr(context, "SHORTEST", 128)
    monkeypatch.setattr(context, "PIECES", {"cpu": 128})
    costs = context.measure(mixer, 600, torch.device("cpu"))
    assert [c.tokens for c in costs] == [128, 256, 512]
    assert all(c.seconds > 0 and c.step > 0 and c.peak >= 0 for c in costs)
    assert (costs[0].state == costs[2].state) == (mixer != "softmax")
    of_token = 2 * 128 * 4  # a key and a value of 128 channels, float32
    if mixer == "softmax":
        assert [c.state for c in costs] == [(n + context.STEPS) * of_token for n in (128, 256, 512)]


def test_the_peak_is_that_of_the_memory_in_use():
    peak = context.Peak(torch.device("cpu"))
    big = torch.ones(16 << 20)  # 64 MiB, which are gone when it is read
    del big
    # What else the process does in between moves it by less than an eighth.
    assert 56 << 20 <= peak.read() <= 72 << 20


def test_it_learns(text, tmp_path, capsys):
    """Two pairs, which are enough to see that keys find their values: 1 of 32 is chance."""
    options = [*SMALL, "--data", str(text), "--out", str(tmp_path), "--context", "1024"]
    sizes = ["--pairs", "2", "--steps", "100", "--text-steps", "20", "--length", "32"]
    assert program.main([*options, *sizes]) == 0
    printed = capsys.readouterr().out
    assert "recall" in printed and "text" in printed and "softmax    'x" in printed
    assert "KiB" in printed and "retention" not in printed
    for name in ("learning.png", "context.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert program.main([*options, "--parts", "recall", "--steps", "1"]) == 1


def test_a_model_in_a_process_of_its_own():
    options = program.parse_options([*SMALL, "--jobs", "2", "--steps", "2", "--mixers", "linear"])
    ((mixer, result),) = program.run_all("recall", options)
    alone = program.run("recall", "linear", options)
    assert mixer == "linear" and result.losses == alone.losses


def test_a_difference_is_seen():
    result = program.Result(accuracies=[0.9], stepped=0.8)
    assert program.differs("linear", result, 24) and program.differs("hedgehog", result, 64)
    assert not program.differs("hedgehog", result, 65)
    assert not program.differs("linear", program.Result(accuracies=[0.9], stepped=0.905), 24)


@pytest.mark.parametrize(
    "wrong", ["--mixers none", "--parts all", "--steps 0", "--pairs 33", "--width 30 --heads 4"]
)
def test_bad_arguments_exit_2(wrong):
    with pytest.raises(SystemExit) as caught:
        program.main(wrong.split())
    assert caught.value.code == 2


def test_bad_text_exits_2_with_a_sentence(tmp_path, capsys):
    missing = str(tmp_path / "none.txt")
    assert program.main([*SMALL, "--parts", "text", "--data", missing]) == 2
    assert "there is no such file" in capsys.readouterr().err
    with pytest.raises(data.DataError):
        tasks.text(missing, 16, 4)


@pytest.mark.gpu
@pytest.mark.parametrize("mixer", ["linear", "mamba2", "based", "hedgehog", "softmax"])
def test_on_a_gpu_only_softmax_pays_for_the_context(mixer):
    short, *_, long = context.measure(mixer, 1 << 14, torch.device("cuda"))
    # From a whole piece on, memory is the same but for softmax attention.
    assert (short.state == long.state) == (mixer != "softmax")
    if mixer == "softmax":
        model = context.GPU_MODEL
        of_token = 2 * 2 * model["width"] * model["layers"]  # a key and a value of 16 bits
        assert long.state == (long.tokens + context.STEPS) * of_token
    else:
        assert long.peak < 8 * short.peak  # of 16 times the tokens
