"""The loss curve: where its dots are, what it reads, and what it says without matplotlib."""

import io
import sys

import curve
import pytest
from rich.console import Console


def dots(text):
    """(column, row) of each dot, from the top left."""
    found = set()
    lines = [line.split("│")[1] for line in text.plain.splitlines() if "│" in line]
    for y, line in enumerate(lines):
        for x, character in enumerate(line):
            bits = ord(character) - 0x2800
            found |= {
                (2 * x + i, 4 * y + j)
                for j, row in enumerate(curve.DOTS)
                for i, bit in enumerate(row)
                if bits & bit
            }
    return found


def test_a_falling_line():
    """80 steps in 40 columns: a dot in each, from the top left to the bottom right."""
    chart = curve.chart([float(80 - i) for i in range(80)], width=20, height=5)
    found = sorted(dots(chart))
    assert [x for x, _ in found] == list(range(40))
    rows = [y for _, y in found]
    assert rows == sorted(rows) and rows[0] == 0 and rows[-1] == 19
    assert "79.50" in chart.plain and "1.50" in chart.plain and "80 steps" in chart.plain


@pytest.mark.parametrize("losses", [[], [1.0], [2.0, 2.0], [float(i % 3) for i in range(1000)]])
def test_any_number_of_steps_has_a_chart(losses):
    chart = curve.chart(losses, width=30, height=4)
    assert len(dots(chart)) == (0 if len(losses) < 2 else min(60, len(losses)))


def test_live_it_grows_over_the_progress_bar():
    losses, screen = [3.0], io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with curve.LiveCurve(losses, console, disable=False) as progress:
        task = progress.add_task("loss 2.0000", total=10)
        losses += [2.5, 2.0]
        progress.update(task, completed=3, refresh=True)
    assert "3.00 │" in screen.getvalue() and "3 steps" in screen.getvalue()
    assert "loss 2.0000" in screen.getvalue() and "3/10" in screen.getvalue()


def test_the_log_is_read_up_to_where_it_was_cut(tmp_path):
    log = tmp_path / "log.jsonl"
    assert curve.read(log) == {"loss": ([], []), "evaluation_loss": ([], [])}
    log.write_text('{"step": 1, "loss": 2.5}\n{"step": 1, "evaluation_loss": 2.0}\n{"step": 2, "lo')
    assert curve.read(log) == {"loss": ([1], [2.5]), "evaluation_loss": ([1], [2.0])}


def test_without_matplotlib_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install matplotlib" in curve.draw(tmp_path / "log.jsonl", tmp_path / "loss.png")
