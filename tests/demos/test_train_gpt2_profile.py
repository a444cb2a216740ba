"""The trainer without Python and torch: where it says the time of its steps goes."""

import csv

import pytest
from trainers import SMALL, refused, succeeded

from demos.train_gpt2 import plot_profile

WIDTH, LAYERS, ROWS, LENGTH, VOCABULARY = 32, 2, 32, 16, 128  # of the vocabulary with its padding
SIZES = f"--layers {LAYERS} --width {WIDTH} --heads 2 --steps 3 --profile 2".split()


def parts_of(out):
    """The rows of profile.csv, by the part's name, as numbers."""
    with (out / "profile.csv").open() as file:
        return {
            row.pop("part"): {name: float(x) for name, x in row.items()}
            for row in csv.DictReader(file)
        }


@pytest.mark.parametrize("more", [[], ["--recompute"], ["--total-batch", str(2 * ROWS)]], ids=str)
def test_its_parts_do_what_a_step_does(run_trainer, tokens_file, tmp_path, more):
    """The products multiply with each weight three times, attention takes 3.5 of its forwards."""
    out, again = tmp_path / "out", 2 if "--total-batch" in more else 1
    text = succeeded(run_trainer("--train", tokens_file, "--out", out, *SMALL, *SIZES, *more))
    parts = parts_of(out)
    attention = again * LAYERS * 2 * ROWS * LENGTH * WIDTH
    assert parts["attention"]["flops"] == attention
    assert parts["attention's gradient"]["flops"] == 2.5 * attention
    weights = LAYERS * 12 * WIDTH**2 + VOCABULARY * WIDTH
    products = sum(part["flops"] for part in parts.values()) - 3.5 * attention
    assert products == again * 6 * ROWS * weights
    assert parts["addition and norm"]["launches"] == 2 * again * LAYERS
    assert parts["addition and norm"]["bytes"] == 2 * again * LAYERS * 4 * ROWS * WIDTH * 4
    assert parts["gelu"]["launches"] == again * LAYERS * (2 if "--recompute" in more else 1)
    assert all(part["ms"] >= 0 and part["ms_at_peak"] == 0 for part in parts.values())
    lines = text[text.index("part of a step") :].splitlines()
    assert {line[:28].strip() for line in lines[1 : 1 + len(parts)]} == set(parts)
    total = float(lines[1 + len(parts)].split()[1])
    assert total == pytest.approx(sum(part["ms"] for part in parts.values()), abs=1e-3)


def test_a_run_that_is_not_watched_has_no_profile(run_trainer, tokens_file, tmp_path):
    out = tmp_path / "out"
    text = succeeded(run_trainer("--train", tokens_file, "--out", out, *SMALL, "--steps", 1))
    assert "part of a step" not in text and not (out / "profile.csv").exists()


def test_a_graph_has_no_parts(run_trainer, tokens_file, tmp_path):
    more = ["--train", tokens_file, "--out", tmp_path / "out", "--graph", "--profile", 1]
    refused(run_trainer(*more, *SMALL), "--profile", "--graph")


CONTENT = """part,launches,ms,flops,bytes,ms_at_peak
products,12,60,3e13,1e9,30
norms,25,30,0,6e10,20
between steps,0.5,9.9,0,0,0
embedding,1,0.1,0,1e8,0.05
"""


def test_its_bars_say_how_far_from_the_peak_they_are(tmp_path, capsys):
    profile = tmp_path / "profile.csv"
    profile.write_text(CONTENT)
    assert plot_profile.bars(plot_profile.read(profile)) == {
        "products": (60, 30, "60.0 ms, 60.0%, 500 TFLOP/s, 50% of peak"),
        "norms": (30, 20, "30.0 ms, 30.0%, 2.00 TB/s, 67% of peak"),
        "between steps": (9.9, 0, "9.9 ms, 9.9%"),
        "all others": (0.1, 0.0, "0.1 ms, 0.1%"),
    }
    pytest.importorskip("matplotlib")
    assert plot_profile.main([str(profile)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'profile.png'}\n"
    assert (tmp_path / "profile.png").read_bytes().startswith(b"\x89PNG")
    assert plot_profile.main([str(profile), "--out", str(tmp_path / "new" / "a.svg")]) == 0
    assert "<svg" in (tmp_path / "new" / "a.svg").read_text()


DAMAGED = {
    "empty": (b"", "it has no column part"),
    "a log": (b"step,loss\n1,2\n", "it has no column part"),
    "no parts": (CONTENT.splitlines()[0].encode(), "has no part"),
    "words": ((CONTENT + "loss,many,1,1,1,1\n").encode(), "line 6: has no number"),
    "cut off": ((CONTENT + "loss,1,1").encode(), "line 6: has no number"),
    "bytes": (b"\xff\xfe", "is no text"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_profiles_are_refused(tmp_path, capsys, damage):
    content, part = DAMAGED[damage]
    profile = tmp_path / "profile.csv"
    profile.write_bytes(content)
    assert plot_profile.main([str(profile)]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("plot_profile: ") and part in errors and errors.count("\n") == 1
    assert not (tmp_path / "profile.png").exists()
