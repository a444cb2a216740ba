"""The checked-in records as one picture: how near memory-bound ops come to a copy's bandwidth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.harness import OURS, Panel, Result, load
from benchmarks.records import Records

OURS_STYLE = {"color": "black", "marker": "o", "s": 22, "zorder": 3}
BEST_STYLE = {"facecolors": "none", "edgecolors": "tab:red", "marker": "o", "s": 34, "zorder": 2}
OTHER_STYLE = {"color": "silver", "marker": "|", "s": 26, "zorder": 1}
X_LABEL = "of the rate of a copy of as many bytes"


def panels(found: Records) -> dict[Panel, list[Result]]:
    """The results that a copy of as many bytes was timed beside, by panel of their family."""
    drawn: dict[Panel, list[Result]] = {}
    for family, record in found.items():
        for panel in getattr(load(family), "PANELS", ()):
            drawn[panel] = [
                r
                for r in records.results(record)
                if r.yardstick == "copy" and r.op.endswith("_backward") == panel.backward
            ]
    return drawn


def columns(drawn: dict[Panel, list[Result]]) -> list[list[Panel]]:
    """The panels of each column, the longest first."""
    order = sorted(drawn, key=lambda panel: (-len(drawn[panel]), panel.title))
    which = sorted({panel.column for panel in drawn})
    return [[panel for panel in order if panel.column == column] for column in which]


def share(result: Result, name: str) -> float:
    """A contender's rate, of the copy's."""
    return (result.figure(name) or 0.0) / result.yardstick_rate


def draw_panel(axis: Any, title: str, results: list[Result]) -> None:
    """A line per case: our share, the best peer's and the others'."""
    for line, result in enumerate(results):
        peers = sorted(share(result, name) for name in result.seconds if name != OURS)
        axis.scatter(share(result, OURS), line, **OURS_STYLE)
        axis.scatter(peers[-1:], [line] * len(peers[-1:]), **BEST_STYLE)
        axis.scatter(peers[:-1], [line] * len(peers[:-1]), **OTHER_STYLE)
    names = [f"{r.op.removesuffix('_backward')}  {r.shape}  {r.dtype}" for r in results]
    axis.set_yticks(range(len(results)), names, fontsize=7)
    axis.set_ylim(len(results) - 0.4, -0.6)
    axis.set_xlim(0, 1.55)
    axis.axvline(1.0, color="black", linewidth=0.6)
    axis.grid(axis="x", color="gainsboro", linewidth=0.5)
    axis.set_axisbelow(True)
    axis.set_title(title, fontsize=9, loc="left")
    axis.tick_params(axis="x", labelsize=7)


def arrange(figure: Any, stacks: list[list[Panel]], drawn: dict[Panel, list[Result]]) -> list[Any]:
    """The figure's panels in their columns, where constrained layout puts them."""
    figure.set_layout_engine("constrained")
    axes = []
    for part, stack in zip(figure.subfigures(1, len(stacks)), stacks, strict=True):
        heights = [len(drawn[panel]) + 2 for panel in stack]
        column = part.subplots(len(stack), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axis, panel in zip(column, stack, strict=True):
            draw_panel(axis, panel.title, drawn[panel])
        column[-1].set_xlabel(X_LABEL, fontsize=8)
        axes.extend(column)
    return axes


def places(figure: Any, stacks: list[list[Panel]], drawn: dict[Panel, list[Result]]) -> list[Any]:
    """Left, bottom, width and height of each panel, in the figure's.

    Rounded: the layout's last bits differ from run to run, and matplotlib makes names of them.
    """
    axes = arrange(figure, stacks, drawn)
    figure.suptitle("Title", fontsize=11)  # whose height the panels leave free
    figure.draw_without_rendering()
    boxes = [axis.bbox.transformed(figure.transFigure.inverted()).bounds for axis in axes]
    return [[round(value, 4) for value in box] for box in boxes]


def draw(found: Records, path: Path) -> None:
    """Writes the picture as SVG; the same records give the same bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = panels(found)
    stacks = columns(drawn)
    with matplotlib.rc_context({"svg.hashsalt": "thunderkittens", "svg.fonttype": "none"}):
        trial, figure = (pyplot.figure(figsize=(17, 9.5)) for _ in range(2))
        boxes = iter(places(trial, stacks, drawn))
        for stack in stacks:
            for panel in stack:
                axis = figure.add_axes(next(boxes))
                draw_panel(axis, panel.title, drawn[panel])
            axis.set_xlabel(X_LABEL, fontsize=8)
        gpu, legend = (
            next(iter(found.values()))["machine"]["gpu"],
            "ours (black), the best peer (red), other peers",
        )
        figure.suptitle(f"{gpu}: {legend} (grey)", fontsize=11)
        figure.savefig(path, format="svg", metadata={"Date": None})
        pyplot.close(trial)
        pyplot.close(figure)
