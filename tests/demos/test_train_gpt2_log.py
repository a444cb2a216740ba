"""The trainer without Python and torch: what it says of its speed, and the picture of its log."""

import re
import subprocess
from pathlib import Path

import pytest
from trainers import SMALL, build, column, rows, succeeded

from demos.train_gpt2 import plot

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def say():
    """Runs the program of the speed's functions; returns what it prints."""
    program = build(Path("tests/demos/train_gpt2_speed.cpp"), "simulator")

    def run(*arguments: object) -> str:
        command = [program, *map(str, arguments)]
        return succeeded(subprocess.run(command, capture_output=True, text=True)).strip()

    return run


PEAKS = {
    "NVIDIA H200": "989.5 494.5",
    "NVIDIA H100 80GB HBM3": "989.5 494.5",
    "NVIDIA H100 PCIe": "756.5 378",
    "NVIDIA H20": "148 74",
    "NVIDIA GH200 480GB": "989.5 494.5",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": "0 0",
    "NVIDIA GeForce RTX 4090": "0 0",
    "": "0 0",
}


def test_peaks_go_by_the_name(say):
    assert {name: say("peak", name) for name in PEAKS} == PEAKS


def test_times_are_short(say):
    times = {0: "0 s", 59.4: "59 s", 60: "1 min", 3599: "59 min", 3900: "1 h 05 min"}
    times |= {86399: "23 h 59 min", 200000: "2 d 07 h"}
    assert {seconds: say("time", seconds) for seconds in times} == times


def test_what_is_left_is_the_mean_of_all_but_the_first_step(say):
    """10⁹ operations a token, 1000 tokens in 10 ms: 10¹⁴ a second."""
    share = f"{1e14 / 989.5e12:.6g}"
    assert say("left", 10) == f"0 {share}"
    assert say("left", 10, 5000) == f"50 {share}"
    assert say("left", 10, 5000, 100) == f"1 {share}"
    assert say("left", 10, 5000, 100, 200, 300) == f"2 {share}"


def test_a_run_says_what_a_token_costs_and_what_is_left(run_trainer, tokens_file, tmp_path):
    """Where the peak is unknown, so is the share of it."""
    more = "--steps 3 --layers 2 --width 32 --heads 2".split()
    out = tmp_path / "out"
    text = succeeded(run_trainer("--train", tokens_file, "--out", out, *SMALL, *more))
    flops = 6 * (61 * 32 + 2 * 12 * 32**2) + 6 * 2 * 16 * 32
    assert f"\n{flops / 1e6:.4g} MFLOP a token; the peak is unknown\n" in text
    lines = [line for line in text.splitlines() if line.startswith("step ")]
    left = re.compile("  – of peak  [0-9]+ s left$")  # on a busy machine a step may take a second
    assert len(lines) == 3 and all(map(left.search, lines)) and lines[-1].endswith("  0 s left")
    assert [row["share_of_peak"] for row in rows(out)] == [""] * 3


def test_its_log_is_drawn(run_trainer, tokens_file, tmp_path, capsys):
    out = tmp_path / "out"
    more = ["--steps", 4, "--eval", tokens_file, "--eval-every", 2, "--eval-batches", 1]
    succeeded(run_trainer("--train", tokens_file, "--out", out, *SMALL, *more))
    curves = plot.read(out / "log.csv")
    assert curves["loss"] == ([1, 2, 3, 4], [float(x) for x in column(out, "loss")])
    assert curves["eval_loss"] == ([2, 4], [float(x) for x in column(out, "eval_loss")])
    assert [list(panel.curves) for panel in plot.panels(curves)] == [
        ["training", "held out"],
        ["norm"],
        ["rate"],
        ["speed"],
    ]
    pytest.importorskip("matplotlib")
    assert plot.main([str(out / "log.csv")]) == 0
    assert capsys.readouterr().out == f"{out / 'log.png'}\n"
    assert (out / "log.png").read_bytes().startswith(PNG)
    assert plot.main([str(out / "log.csv"), "--out", str(tmp_path / "new" / "a.png")]) == 0
    assert (tmp_path / "new" / "a.png").read_bytes().startswith(PNG)


HEADER = (
    "step,loss,norm,lr,ms,tokens_per_second,loss_z,norm_z,skipped,share_of_peak,eval_loss,"
    "hellaswag\n"
)
ROW = "1,4.5,1.25,0.1,2,300,,,0,,,\n"
DAMAGED = {
    "empty": (b"", "it has no column step"),
    "other": (b"step,loss\n1,2\n", "it has no column eval_loss"),
    "no steps": (HEADER.encode(), "has no step yet"),
    "words": ((HEADER + ROW + "2,many,1,1,1,1,,,0,,,\n").encode(), "line 3: loss is no number"),
    "bytes": (b"\xff\xfe" + HEADER.encode(), "log.csv: is no text"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_logs_are_refused(tmp_path, capsys, damage):
    content, part = DAMAGED[damage]
    log = tmp_path / "log.csv"
    log.write_bytes(content)
    assert plot.main([str(log)]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("plot: ") and part in errors and errors.count("\n") == 1
    assert not (tmp_path / "log.png").exists()


def test_a_log_that_is_not_there_is_refused(tmp_path, capsys):
    assert plot.main([str(tmp_path / "log.csv")]) == 1
    assert str(tmp_path / "log.csv") in capsys.readouterr().err


def test_answers_have_a_diagram_where_there_are_some():
    curves = {name: ([1.0], [2.0]) for name in plot.COLUMNS}
    assert [list(panel.curves) for panel in plot.panels(curves)][-1] == ["answered"]


def test_a_line_that_is_cut_off_counts_not(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text(HEADER + ROW + "2,4.")
    assert plot.read(log)["loss"] == ([1], [4.5])
