"""README's picture and the figures in its words: a few of the records', chosen by families."""

from __future__ import annotations

import math
from pathlib import Path

from benchmarks import records
from benchmarks.harness import COMPILED, OURS, Headline, Result, is_ours, load
from benchmarks.records import Records
from build_tools.svg import Picture

PICTURE = Path(__file__).parent / "records" / "headline.svg"
OF_ONE_RECIPE = (OURS, COMPILED)  # and torch's: what else is ours is for RESULTS.md
TORCHS = ("torch", "torch.compile", "cuDNN")
LEGEND = (
    ("ours", "thunderkittens"),
    ("torch", "fastest of torch: eager, compiled or cuDNN"),
    ("other", "fastest other: FlashAttention-2, Liger or flash-attn"),
)
PANELS = {"TFLOP/s": "Attention and a training step, TFLOP/s", "TB/s": "Memory-bound ops, TB/s"}
WIDTH, MARGIN, NAMES = 640, 20, 132
BAR, GAP, CAPTION = 15, 4, 19


def chosen(found: Records) -> list[tuple[Headline, Result]]:
    """The results that the families' files choose, those that FLOPs limit first."""
    shown = []
    for family, record in found.items():
        results = {(r.op, r.shape, r.dtype): r for r in records.results(record)}
        for choice in getattr(load(family), "HEADLINES", ()):
            shown.append((choice, results[choice.op, choice.shape, choice.dtype]))
    return sorted(shown, key=lambda pair: pair[1].unit != "TFLOP/s")


def bars(result: Result) -> list[tuple[str, str, float]]:
    """Class, contender and figure of at most three: ours, torch's fastest and the others'."""
    names = {"ours": [name for name in result.seconds if name in OF_ONE_RECIPE]}
    names["torch"] = [name for name in result.seconds if name in TORCHS]
    names["other"] = [name for name in result.seconds if not (is_ours(name) or name in TORCHS)]
    best = {kind: min(some, key=result.seconds.get) for kind, some in names.items() if some}
    return [(kind, name, result.figure(name)) for kind, name in best.items()]


def draw(found: Records) -> str:
    """The picture: groups of bars from zero, a scale for each unit, every bar with its figure."""
    shown = chosen(found)
    heights = [CAPTION + len(bars(r)) * (BAR + GAP) + 10 for _, r in shown]
    units = list(dict.fromkeys(result.unit for _, result in shown))
    height = 26 + 22 * len(LEGEND) + 34 * len(units) + sum(heights) + 26
    picture = Picture(WIDTH, height, "Speed of some ops beside their peers, on one H200")
    y = 18
    for kind, text in LEGEND:
        picture.rect(MARGIN, y, 14, 14, kind, corner=2)
        picture.text(MARGIN + 22, y + 12, text)
        y += 22
    room = WIDTH - 2 * MARGIN - NAMES - 52
    for unit in units:
        y += 34
        picture.text(MARGIN, y - 8, PANELS[unit], "ink bold", 15)
        group = [(choice, result) for choice, result in shown if result.unit == unit]
        longest = max(figure for _, result in group for _, _, figure in bars(result))
        for choice, result in group:
            picture.text(MARGIN, y + 12, caption(choice, result), "soft", 12.5)
            y += CAPTION
            for kind, name, figure in bars(result):
                picture.text(MARGIN + NAMES - 8, y + 12, name, at="end", size=12.5)
                picture.rect(MARGIN + NAMES, y, room * figure / longest, BAR, kind, corner=2)
                text = f"{figure:.0f}" if unit == "TFLOP/s" else f"{figure:.2f}"
                end = MARGIN + NAMES + room * figure / longest + 6
                picture.text(end, y + 12, text, "ink bold" if kind == "ours" else "ink", 12.5)
                y += BAR + GAP
            y += 10
    about = next(iter(found.values()))["machine"]
    footer = f"{about['gpu']}, torch {about['torch'].split('+')[0]}, bf16; benchmarks/RESULTS.md"
    picture.text(MARGIN, height - 12, footer, "soft", 12)
    return picture.svg()


def caption(choice: Headline, result: Result) -> str:
    """What a group of bars is about; of memory-bound ops with the rate of a copy."""
    if result.yardstick != "copy":
        return choice.title
    return f"{choice.title} (a copy of as many bytes: {result.yardstick_rate:.2f})"


def against(found: Records, family: str, peer: str) -> tuple[float, float, float]:
    """How many times as fast as a peer we are: least, most and geometric mean over a record."""
    ratios = [
        result.seconds[peer] / result.seconds[OURS]
        for result in records.results(found[family])
        if peer in result.seconds
    ]
    return min(ratios), max(ratios), math.exp(sum(map(math.log, ratios)) / len(ratios))


def memory_bound(found: Records) -> tuple[int, int, int]:
    """Cases beside a copy: all, those where ours is fastest, those at 0.9 of the copy or more.

    Of ops: the kernels of `classic` are in the literature's spelling, none of the package's.
    """
    every = [
        r
        for family, record in found.items()
        if family != "classic"
        for r in records.results(record)
    ]
    copied = [r for r in every if r.yardstick == "copy"]
    fastest = [r for r in copied if (r.ratio() or 0.0) > 1]
    near = [r for r in copied if r.figure(OURS) >= 0.9 * r.yardstick_rate]
    return len(copied), len(fastest), len(near)
