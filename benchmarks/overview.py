"""The checked-in records as one picture: how near memory-bound ops come to a copy's bandwidth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.harness import OURS, Panel, Result, is_ours, load
from benchmarks.records import Records

OURS_STYLE = {"color": "black", "marker": "o", "s": 22, "zorder": 3}
BEST_STYLE = {"facecolors": "none", "edgecolors": "tab:red", "marker": "o", "s": 34, "zorder": 2}
OTHER_STYLE = {"color": "silver", "marker": "|", "s": 26, "zorder": 1}

# Inches: the picture; what is free above, below and between panels, and left and right of them.
SIZE = (17.0, 9.5)
TOP, BOTTOM, GAP = 0.6, 0.5, 0.42
LABELS, MARGIN = 2.75, 0.15


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
        peers = sorted(share(result, name) for name in result.seconds if not is_ours(name))
        axis.scatter(share(result, OURS), line, **OURS_STYLE)
        axis.scatter(peers[-1:], [line] * len(peers[-1:]), **BEST_STYLE)
        axis.scatter(peers[:-1], [line] * len(peers[:-1]), **OTHER_STYLE)
    one_op = len({r.op for r in results}) == 1  # which the title names
    ops = ["" if one_op else r.op.removesuffix("_backward") + "  " for r in results]
    names = [f"{op}{r.shape}  {r.dtype}" for op, r in zip(ops, results, strict=True)]
    axis.set_yticks(range(len(results)), names, fontsize=7)
    axis.set_ylim(len(results) - 0.4, -0.6)
    axis.set_xlim(0, 1.55)
    axis.axvline(1.0, color="black", linewidth=0.6)
    axis.grid(axis="x", color="gainsboro", linewidth=0.5)
    axis.set_axisbelow(True)
    axis.set_title(title, fontsize=9, loc="left")
    axis.tick_params(axis="x", labelsize=7)


def places(drawn: dict[Panel, list[Result]]) -> dict[Panel, tuple[float, float, float, float]]:
    """Left, bottom, width and height of each panel, as parts of the picture's.

    By arithmetic: matplotlib's own layouts differ in their last bits from run to run, and it makes
    names of what they are.
    """
    (width, height), stacks = SIZE, columns(drawn)
    column = width / len(stacks)
    found = {}
    for number, stack in enumerate(stacks):
        lines = sum(len(drawn[panel]) for panel in stack)
        line = (height - TOP - BOTTOM - GAP * (len(stack) - 1)) / lines
        end = height - TOP
        for panel in stack:
            tall = line * len(drawn[panel])
            end -= tall
            left = number * column + LABELS
            found[panel] = (
                left / width,
                end / height,
                (column - LABELS - MARGIN) / width,
                tall / height,
            )
            end -= GAP
    return found


def draw(found: Records, path: Path) -> None:
    """Writes the picture as SVG; the same records give the same bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = panels(found)
    with matplotlib.rc_context({"svg.hashsalt": "thunderkittens", "svg.fonttype": "none"}):
        figure = pyplot.figure(figsize=SIZE)
        for panel, place in places(drawn).items():
            draw_panel(figure.add_axes(place), panel.title, drawn[panel])
        figure.supxlabel("of the rate of a copy of as many bytes", fontsize=8, y=0.01)
        gpu, legend = (
            next(iter(found.values()))["machine"]["gpu"],
            "ours (black), the best peer (red), other peers",
        )
        figure.suptitle(f"{gpu}: {legend} (grey)", fontsize=11)
        figure.savefig(path, format="svg", metadata={"Date": None})
        pyplot.close(figure)
