"""The loss of a run as a curve: live in the terminal, and as a PNG."""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TimeRemainingColumn
from rich.text import Text

# Bits of a character of Unicode's braille patterns: 2 dots wide, 4 high, from the top.
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


class LiveCurve(Progress):
    """A progress bar under the curve of a list that grows."""

    def __init__(self, losses: Sequence[float], console: Console, disable: bool) -> None:
        self._losses = losses
        columns = "{task.description}", BarColumn(None), "{task.completed}/{task.total}"
        super().__init__(*columns, TimeRemainingColumn(), console=console, disable=disable)

    def get_renderables(self) -> Iterator[RenderableType]:
        """What each refresh draws."""
        yield chart(self._losses)
        yield self.make_tasks_table(self.tasks)


def chart(losses: Sequence[float], width: int = 64, height: int = 10) -> Text:
    """The losses as dots, `width` x `height` characters; each column the mean of its steps."""
    count = min(2 * width, len(losses))
    if count < 2:
        return Text()
    edges = [i * len(losses) // count for i in range(count + 1)]
    means = [sum(losses[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    rows = 4 * height
    cells = [[0] * width for _ in range(height)]
    for i, mean in enumerate(means):
        x = i * (2 * width - 1) // (count - 1)
        y = round((high - mean) / ((high - low) or 1.0) * (rows - 1))
        cells[y // 4][x // 2] |= DOTS[y % 4][x % 2]
    labels = {0: f"{high:.2f}", height - 1: f"{low:.2f}"}
    lines = [
        f"{labels.get(y, ''):>6} │{''.join(chr(0x2800 + cell) for cell in row)}"
        for y, row in enumerate(cells)
    ]
    steps = f"{'1':<{width - len(str(len(losses)))}}{len(losses)}"
    return Text("\n".join([*lines, f"{'loss':>6} └{'─' * width}", f"{'':8}{steps} steps"]))


def read(log: Path) -> dict[str, tuple[list[int], list[float]]]:
    """The steps and values of "loss" and "evaluation_loss" in a log; a line cut off counts not."""
    found: dict[str, tuple[list[int], list[float]]] = {
        "loss": ([], []),
        "evaluation_loss": ([], []),
    }
    for line in log.read_text().splitlines() if log.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        for name, (steps, values) in found.items():
            if name in entry:
                steps.append(entry["step"])
                values.append(entry[name])
    return found


def draw(log: Path, png: Path) -> str:
    """Draws a log's curves; returns why it could not, or ""."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        return f"{error}; `pip install matplotlib`"
    curves = read(log)
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss (nats a token)")
    axes.plot(*curves["loss"], color="#9db7d5", linewidth=1.0, label="training")
    axes.plot(*curves["evaluation_loss"], "o-", color="#1f5fa8", markersize=3, label="held out")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(png)
    return ""
