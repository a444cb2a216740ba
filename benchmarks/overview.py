"""The checked-in record as one picture: how near memory-bound ops come to a copy's bandwidth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.harness import OURS, Result

PANELS = {  # title: family, and how the names of its ops end
    "norms": ("norm", False),
    "norms, backward": ("norm", True),
    "activations": ("activation", False),
    "activations, backward": ("activation", True),
    "rotary": ("rotary", False),
    "cross entropy": ("cross_entropy", False),
    "cross entropy, with gradient": ("cross_entropy", True),
}
COLUMNS = (
    ("norms", "rotary"),
    ("norms, backward", "cross entropy", "cross entropy, with gradient"),
    ("activations", "activations, backward"),
)
OURS_STYLE = {"color": "black", "marker": "o", "s": 22, "zorder": 3}
BEST_STYLE = {"facecolors": "none", "edgecolors": "tab:red", "marker": "o", "s": 34, "zorder": 2}
OTHER_STYLE = {"color": "silver", "marker": "|", "s": 26, "zorder": 1}


def panels(record: dict[str, Any]) -> dict[str, list[Result]]:
    """The results that a copy of as many bytes was timed beside, by panel."""
    found: dict[str, list[Result]] = {}
    for title, (family, backward) in PANELS.items():
        results = [Result(**entry) for entry in record["results"].get(family, ())]
        found[title] = [
            r for r in results if r.yardstick == "copy" and r.op.endswith("_backward") == backward
        ]
    return found


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


def draw(record: dict[str, Any], path: Path) -> None:
    """Writes the picture as SVG; the same record gives the same bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = panels(record)
    with matplotlib.rc_context({"svg.hashsalt": "thunderkittens", "svg.fonttype": "none"}):
        figure = pyplot.figure(figsize=(17, 9.5), layout="constrained")
        for column, titles in zip(figure.subfigures(1, len(COLUMNS)), COLUMNS, strict=True):
            heights = [len(found[title]) + 2 for title in titles]
            axes = column.subplots(len(titles), 1, squeeze=False, height_ratios=heights)
            for axis, title in zip(axes[:, 0], titles, strict=True):
                draw_panel(axis, title, found[title])
            axes[-1, 0].set_xlabel("of the rate of a copy of as many bytes", fontsize=8)
        figure.suptitle(
            f"{record['machine']['gpu']}: ours (black), the best peer (red), other peers (grey)",
            fontsize=11,
        )
        figure.savefig(path, format="svg", metadata={"Date": None})
        pyplot.close(figure)
