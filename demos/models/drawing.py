"""Curves as a PNG, by matplotlib where it is installed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


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
    png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png)
    return ""
