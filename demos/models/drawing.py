"""Curves and bars as a picture, by matplotlib where it is installed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class Panel:
    """A diagram: named curves of (x, y), and levels, which are named y without an x."""

    x: str
    y: str
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    levels: Mapping[str, float] | None = None
    log: bool = False  # both axes, in powers of two and ten


def draw(png: Path, panels: Sequence[Panel], columns: int = 2) -> str:
    """Draws panels, with one legend if all name the same; returns why it could not, or ""."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        return f"no {png.name}: {error}; `pip install matplotlib`"
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(4.5 * columns, 3.2 * rows), dpi=110, layout="constrained")
    one_legend = len({(*panel.curves, *(panel.levels or ())) for panel in panels}) == 1
    for i, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, i + 1, xlabel=panel.x, ylabel=panel.y)
        for name, (xs, ys) in panel.curves.items():
            line = "o-" if panel.log or len(xs) == 1 else "-"  # a point has no line
            axes.plot(xs, ys, line, label=name, markersize=3, linewidth=1.4)
        for number, (name, y) in enumerate((panel.levels or {}).items(), len(panel.curves)):
            axes.axhline(y, linestyle=":", color=f"C{number}", label=name)
        if panel.log:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if not one_legend:
            axes.legend(frameon=False)
    if one_legend:
        lines, names = figure.axes[0].get_legend_handles_labels()
        options = {"loc": "outside upper center", "ncols": len(lines), "frameon": False}
        figure.legend(lines, names, **options)
    return _save(figure, png)


def draw_bars(picture: Path, axis: str, bars: Mapping[str, tuple[float, float, str]]) -> str:
    """Draws bars below one another; returns why it could not, or "".

    Args:
        picture: The file; its suffix says what it is, as .png or .svg.
        axis: What they are of.
        bars: By name how long each is, how much of it, from the left, is darker, and what is
            written behind it.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        return f"no {picture.name}: {error}; `pip install matplotlib`"
    figure = Figure(figsize=(9, 0.6 + 0.26 * len(bars)), dpi=110, layout="constrained")
    axes = figure.add_subplot(xlabel=axis)
    names, lengths = list(bars), [length for length, _, _ in bars.values()]
    axes.barh(names, lengths, color="C0", alpha=0.35)
    axes.barh(names, [darker for _, darker, _ in bars.values()], color="C0")
    for row, (length, _, text) in enumerate(bars.values()):
        axes.text(length, row, f" {text}", va="center", fontsize=8)
    axes.set_xlim(0, 1.25 * max(lengths))
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return _save(figure, picture)


def _save(figure: "Figure", picture: Path) -> str:
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture)
    return ""
