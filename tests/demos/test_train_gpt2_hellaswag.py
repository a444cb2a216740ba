"""The trainer without Python and torch: questions of multiple choice, beside PyTorch in float64."""

import json
import struct
from pathlib import Path

import pytest
import torch
from models.gpt2 import GPT2
from torch.nn.functional import cross_entropy
from trainers import (
    LENGTH,
    RECIPE,
    SMALL,
    VOCABULARY,
    column,
    make_checkpoint,
    refused,
    rows,
    succeeded,
)

from demos.train_gpt2 import prepare

Question = tuple[list[int], list[list[int]]]


def file_of(questions: list[list[int]], count: int | None = None) -> bytes:
    """An evaluation file of words of 16 bits."""
    header = (20240522, 1, len(questions) if count is None else count, 2 * 40)
    words = [word for question in questions for word in question]
    return struct.pack("<4i", *header).ljust(1024, b"\0") + struct.pack(f"<{len(words)}H", *words)


def words_of(question: Question, number: int, answer: int) -> list[int]:
    context, endings = question
    words = [answer, len(endings)]
    for tokens in (context, *endings):
        words += [len(tokens), *tokens]
    return [65535, 2 * (len(words) + 3), number, *words]


def random_questions(count: int) -> list[Question]:
    """Of two to four endings; the longest fill a sequence."""
    generator = torch.Generator().manual_seed(11)

    def tokens(least: int, most: int) -> list[int]:
        length = int(torch.randint(least, most + 1, (), generator=generator))
        return torch.randint(0, VOCABULARY, (length,), generator=generator).tolist()

    longest = (tokens(9, 9), [tokens(3, 3), tokens(8, 8)])
    others = range(count - 1)
    return [longest, *((tokens(1, 9), [tokens(1, 8) for _ in range(2 + i % 3)]) for i in others)]


def mean_losses(model: GPT2, question: Question) -> list[float]:
    context, endings = question
    losses = []
    for ending in endings:
        tokens = torch.tensor([*context, *ending])
        with torch.no_grad():
            logits = model(tokens[None, :-1])[0]
        losses.append(cross_entropy(logits, tokens[1:], reduction="none")[-len(ending) :].mean())
    return [float(loss) for loss in losses]


@pytest.mark.parametrize("wrong", [0, 1, 5])
def test_the_ending_of_the_lowest_mean_loss_is_the_answer(
    run_trainer, tokens_file, tmp_path, wrong
):
    """Every one is seen: with `wrong` other answers in the file, so many are not right."""
    model = make_checkpoint(tmp_path / "init", deviation=0.15).double()
    questions = random_questions(10)
    assert len(questions[0][0]) + len(questions[0][1][1]) == LENGTH + 1
    words = []
    for i, question in enumerate(questions):
        losses = sorted((loss, e) for e, loss in enumerate(mean_losses(model, question)))
        assert losses[1][0] - losses[0][0] > 1e-4, "float32 may not decide otherwise"
        words.append(words_of(question, i, losses[int(i < wrong)][1]))
    path, out = tmp_path / "hellaswag.bin", tmp_path / "out"
    path.write_bytes(file_of(words))
    # Three choices at a time: a question's are not all in one batch.
    more = ["--init", tmp_path / "init", "--hellaswag", path, *"--steps 0 --batch 3".split()]
    text = succeeded(run_trainer("--train", tokens_file, "--out", out, *RECIPE, *more))
    assert f"step 0  {100 - 10 * wrong}.00 % of 10 questions answered\n" in text
    assert [row["hellaswag"] for row in rows(out)] == [f"{1 - wrong / 10:g}"]


def test_they_are_asked_with_each_evaluation_and_change_nothing(run_trainer, tokens_file, tmp_path):
    path = tmp_path / "hellaswag.bin"
    path.write_bytes(file_of([words_of(q, i, 0) for i, q in enumerate(random_questions(3))]))
    asked = ["--hellaswag", path, "--eval", tokens_file, "--eval-every", 2, "--eval-batches", 1]
    weights = []
    for name, more in (("asked", asked), ("not", [])):
        arguments = ["--train", tokens_file, "--out", tmp_path / name, *SMALL, "--steps", 5, *more]
        text = succeeded(run_trainer(*arguments))
        assert "5 steps, in whose loop 0 allocations and 0 synchronisations" in text
        weights.append((tmp_path / name / "step-00000005" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    evaluations = [row for row in rows(tmp_path / "asked") if not row["loss"]]
    assert [row["step"] for row in evaluations] == ["2", "4", "5"]
    assert all(row["eval_loss"] and row["hellaswag"] for row in evaluations)
    # Asked once more of the run that is over, there is one row of it all the same.
    more = ["--resume", "--steps", 5, *asked]
    succeeded(run_trainer("--train", tokens_file, "--out", tmp_path / "asked", *SMALL, *more))
    assert len(column(tmp_path / "asked", "hellaswag")) == 3


def test_prepared_questions_are_read(run_trainer, text, tmp_path, capsys):
    """Each ending begins with a blank, and is encoded apart from its context, as llm.c's."""
    lines = [
        {"ctx": "def add_1_2(x):", "label": 1, "endings": ["return y", "return x + 1 * 2"]},
        {"ctx": "x", "label": "0", "endings": ["= 1", "é\u2028", "<|endoftext|>"], "ind": 7},
    ]
    source, folder = tmp_path / "questions.jsonl", tmp_path / "data"
    source.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    arguments = ["--data", str(text), "--out", str(folder), "--vocabulary", "280"]
    assert prepare.main([*arguments, "--hellaswag", str(source)]) == 0
    assert f"{folder / 'hellaswag.bin'}: 2 questions" in capsys.readouterr().out
    tokenizer = prepare.load_tokenizer(folder / "tokenizer.json")

    def encoded(line: dict) -> Question:
        endings = [tokenizer.encode(" " + ending).ids for ending in line["endings"]]
        return tokenizer.encode(line["ctx"]).ids, endings

    words = [words_of(encoded(line), i, int(line["label"])) for i, line in enumerate(lines)]
    content = (folder / "hellaswag.bin").read_bytes()
    assert content[:12] + content[1024:] == file_of(words)[:12] + file_of(words)[1024:]
    assert struct.unpack("<i", content[12:16]) == (max(question[1] for question in words),)
    more = [*SMALL, "--vocabulary", 280, "--length", 64, "--steps", 0, "--out", tmp_path / "out"]
    more += ["--hellaswag", folder / "hellaswag.bin"]
    assert "of 2 questions" in succeeded(run_trainer("--train", folder / "train.bin", *more))


WRONG_LINES = {
    "no JSON": "{",
    "a list": "[]",
    "no label": '{"ctx": "a", "endings": ["b", "c"]}',
    "no endings": '{"ctx": "a", "endings": 3, "label": 0}',
    "label": '{"ctx": "a", "endings": ["b", "c"], "label": 2}',
    "numbers": '{"ctx": "a", "endings": [1, 2], "label": 0}',
    "nothing": "",
}


@pytest.mark.parametrize("wrong", WRONG_LINES)
def test_lines_that_are_no_questions_are_refused(text, tmp_path, capsys, wrong):
    source = tmp_path / "questions.jsonl"
    source.write_text(WRONG_LINES[wrong])
    arguments = ["--data", str(text), "--out", str(tmp_path / "data"), "--vocabulary", "280"]
    assert prepare.main([*arguments, "--hellaswag", str(source)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"prepare: {source}: ") and said.count("\n") == 1
    assert not (tmp_path / "data" / "hellaswag.bin").exists()


SOUND = words_of(([1, 2], [[3], [4, 5]]), 0, 1)  # 65535, 24, 0, 1, 2, then 2, 1, 2; 1, 3; 2, 4, 5


def changed(at: int, word: int) -> bytes:
    return file_of([[*SOUND[:at], word, *SOUND[at + 1 :]]])


DAMAGED = {
    "empty": (b"", "is empty"),
    "short": (b"abc", "must begin with 1024 bytes"),
    "magic": (struct.pack("<3i", 20240520, 1, 1).ljust(1100, b"\0"), "got 20240520, 1 and 1"),
    "none": (file_of([]), "got 20240522, 1 and 0"),
    "more": (file_of([SOUND], 2), "question 1 goes on behind the end"),
    "fewer": (
        file_of([SOUND, SOUND], 1),
        "its questions have 1050 bytes with the header, got 1076",
    ),
    "start": (changed(0, 65534), "question 0 must begin with 65535"),
    "bytes": (changed(1, 28), "question 0 says that it has 28 bytes, got 26"),
    "answer": (changed(3, 2), "question 0 has the answer 2 of 2"),
    "unknown": (changed(9, 61), "question 0 has a token that must be below the vocabulary of 61"),
    "no tokens": (changed(8, 0), "without tokens"),
    "cut": (file_of([SOUND[:-1]]), "question 0 goes on behind the end"),
    "long": (
        file_of([words_of(([1] * 9, [[2] * 9, [3]]), 0, 0)]),
        "question 0 has 18 tokens, more than --length, 16, and one",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_questions_are_refused(run_trainer, tokens_file, tmp_path, damage):
    content, part = DAMAGED[damage]
    path = tmp_path / "hellaswag.bin"
    path.write_bytes(content)
    more = [*SMALL, "--hellaswag", path, "--out", tmp_path / "out"]
    refused(run_trainer("--train", tokens_file, *more), path, part)


def test_a_vocabulary_that_the_format_has_no_room_for_is_refused(tmp_path):
    class Wide:
        def get_vocab(self) -> dict[str, int]:
            return {"a": 0, "b": 65535}

    with pytest.raises(ValueError, match="tokens must be below 65535"):
        prepare.write_questions(tmp_path / "hellaswag.bin", Wide(), Path("questions.jsonl"))
