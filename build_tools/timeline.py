"""Draws a timeline of the simulator (`trace=t.json`) as a picture.

`python -m build_tools.timeline t.json picture.svg` draws the file's last launch. The simulator's
steps are no cycles, so that lengths mean nothing, and a picture shows an order: each time at which
something begins or ends is as far from the next one as any other.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from build_tools.svg import Picture

LEFT, TOP, WIDTH = 190, 62, 760  # pixels: of the names, of the title, of the timeline
ROW, LANE, GAP = 15, 4, 4
KINDS = {  # of spans: their colour, and what they are
    "runs": ("hue2", "runs"),
    "waits": ("plain", "waits"),
    "copy": ("hue1", "a copy is under way"),
    "product": ("hue0", "a product is under way"),
}

Span = dict[str, Any]  # an event of the trace


def launches(trace: dict[str, Any]) -> list[int]:
    """The processes of a trace, each a launch, in their order."""
    named = [e["pid"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    return sorted(named)


def draw(trace: dict[str, Any], launch: int = -1, title: str = "") -> str:
    """A launch as SVG text.

    Args:
        trace: What a file of the simulator's holds.
        launch: Its number in the file; negative ones count from the end.
        title: What the picture is of; by default, the launch's own words.

    Raises:
        IndexError: There is no such launch.
    """
    process = launches(trace)[launch]
    events = [e for e in trace["traceEvents"] if e["pid"] == process]
    labels = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    own = next(e["args"]["name"] for e in events if e["name"] == "process_name")
    spans = [e for e in events if e["ph"] == "X"]
    times = sorted({t for e in spans for t in (e["ts"], e["ts"] + e["dur"])})
    step = WIDTH / max(len(times) - 1, 1)
    place = {time: LEFT + number * step for number, time in enumerate(times)}

    rows: dict[str, list[str]] = {}  # the lanes of each row: "TMA" has "TMA", "TMA, 2" …
    for label in labels.values():
        rows.setdefault(row_of(label), []).append(label)
    heights = {row: max(ROW, LANE * len(lanes)) for row, lanes in rows.items()}
    height = TOP + sum(heights.values()) + GAP * len(rows) + 14
    picture = Picture(LEFT + WIDTH + 16, height, title or own)
    picture.text(16, 24, title or own, "ink bold", 14)
    legend(picture, {kind_of(e, labels[e["tid"]]) for e in spans})
    y = TOP
    for row, lanes in rows.items():
        picture.text(LEFT - 10, y + heights[row] / 2 + 4, row, "soft", 11, "end")
        lane_height = heights[row] / len(lanes)
        for number, lane in enumerate(lanes):
            for e in spans:
                if labels[e["tid"]] == lane:
                    x, end = place[e["ts"]], place[e["ts"] + e["dur"]]
                    colour = KINDS[kind_of(e, lane)][0]
                    top = y + number * lane_height
                    picture.rect(x, top, max(end - x - 0.5, 0.5), lane_height - 0.5, colour)
        y += heights[row] + GAP
    return picture.svg()


def row_of(label: str) -> str:
    """The row of a label: what overlaps has lanes, "TMA, 2" beside "TMA"."""
    return re.sub(r", \d+$", "", label)


def kind_of(span: Span, label: str) -> str:
    """What a span is; `label`: its row's."""
    if "warp " in label and "wgmma" not in label:
        return "runs" if span["name"] == "runs" else "waits"
    return "product" if "wgmma" in label else "copy"


def legend(picture: Picture, shown: set[str]) -> None:
    """What the colours are, of those that there are."""
    x: float = LEFT
    for kind, (colour, text) in KINDS.items():
        if kind in shown:
            picture.rect(x, 36, 14, 11, colour)
            picture.text(x + 20, 46, text, "soft", 11.5)
            x += 50 + 6.2 * len(text)
    picture.text(LEFT + WIDTH, 46, "order, not lengths →", "soft", 11.5, "end")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m build_tools.timeline", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("trace", type=Path, help="a file of the simulator's")
    parser.add_argument("picture", type=Path, help="the SVG to write")
    parser.add_argument("--launch", type=int, default=-1, help="its number (default: -1, the last)")
    parser.add_argument("--title", default="", help="what the picture is of")
    options = parser.parse_args(arguments)
    trace = json.loads(options.trace.read_text())
    count = len(launches(trace))
    if not -count <= options.launch < count:
        parser.error(f"--launch must be {-count} to {count - 1}, got {options.launch}")
    options.picture.write_text(draw(trace, options.launch, options.title))
    return 0


if __name__ == "__main__":
    sys.exit(main())
