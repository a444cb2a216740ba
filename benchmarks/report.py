"""How results look: the table, the plot, and the machine they were taken on."""

from __future__ import annotations

import datetime
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import OURS, TIMES, Result


def command(*words: str) -> str:
    """Standard output of a command, "" when it is absent or fails."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def clocks() -> list[str]:
    """Driver, SM clock, its maximum, memory clock, power limit, temperature; the GPU at work."""
    a = torch.randn(8192, 8192, device="cuda").bfloat16()
    for _ in range(600):  # about a second: an idle GPU reports an idle clock
        torch.mm(a, a)
    query = "driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu"
    found = command("nvidia-smi", "-i", "0", f"--query-gpu={query}", "--format=csv,noheader")
    torch.cuda.synchronize()
    return [value.strip() for value in found.split(",")] if found else ["unknown"] * 6


def checkout() -> str:
    """The commit that is checked out, and whether tracked files differ from it."""
    git = ("git", "-C", str(Path(__file__).parent.parent))
    commit = command(*git, "rev-parse", "--short=10", "HEAD") or "unknown"
    changed = commit != "unknown" and command(*git, "status", "--porcelain", "-uno")
    return f"{commit} + changes" if changed else commit


def machine(commit: str | None = None) -> dict[str, str]:
    """GPU, clocks as found, versions, date and commit: what a figure means nothing without."""
    import thunderkittens

    values = clocks()
    try:
        import triton

        triton_version = triton.__version__
    except ImportError:
        triton_version = "absent"
    return {
        "gpu": torch.cuda.get_device_name(0),
        "driver": values[0],
        "clocks": f"SM {values[1]} of {values[2]}, memory {values[3]}, limit {values[4]}, "
        f"{values[5]} °C",
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),
        "torch": torch.__version__,
        "triton": triton_version,
        "thunderkittens": thunderkittens.__version__,
        "date": datetime.date.today().isoformat(),
        "commit": commit or checkout(),
    }


def time_text(seconds: float) -> str:
    """`8.31 µs`, `63.2 µs` or `1.24 ms`."""
    return f"{seconds * 1e6:.3g} µs" if seconds < 999.5e-6 else f"{seconds * 1e3:.3g} ms"


def figure_text(result: Result, name: str) -> str:
    """A table's `3.91 (68.6 µs)` in the result's unit, a time where that is it, – if absent."""
    figure = result.figure(name)
    if figure is None:
        return "–"
    if result.unit in TIMES:
        return f"{figure:.1f} {result.unit}"
    rate = f"{figure:.2f}" if result.unit == "TB/s" else f"{figure:.0f}"
    return f"{rate} ({time_text(result.seconds[name])})"


def file_name(about: dict[str, Any]) -> str:
    """What the files about a machine are called, without their ending."""
    return about["gpu"].lower().replace("nvidia ", "").replace(" ", "_")


def columns(results: list[Result]) -> list[str]:
    """Contenders that were timed at least once, ours first."""
    names = dict.fromkeys(name for result in results for name in result.seconds)
    return sorted(names, key=lambda name: name != OURS)


def print_result(result: Result) -> None:
    """The case, then a line per contender, the yardstick, and who was skipped and why."""
    print(f"\n{result.op}, {result.shape}, {result.dtype}   [{result.method}]")
    for name in columns([result]):
        figure, seconds = result.figure(name), result.seconds[name]
        time = "" if result.unit in TIMES else f"{time_text(seconds):>10}"
        print(f"  {name:<20}{figure:8.2f} {result.unit}{time}")
    if result.yardstick:
        print(f"  {result.yardstick:<20}{result.yardstick_rate:8.2f} {result.unit}")
    for name, why in result.skipped.items():
        print(f"  {name:<20}skipped: {why}")


def draw(record: dict[str, Any], path: Path) -> None:
    """One panel per op: bars by contender at each shape, the yardstick as a line above them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels: dict[str, list[Result]] = defaultdict(list)
    for results in record["results"].values():
        for entry in results:
            what = ", host time" if entry["unit"] == "µs" else ""
            panels[f"{entry['op']}{what} [{entry['unit']}]"].append(Result(**entry))
    figure, axes = pyplot.subplots(
        len(panels), 1, figsize=(12, 4 * len(panels)), squeeze=False, layout="constrained"
    )
    for axis, (title, results) in zip(axes[:, 0], panels.items(), strict=True):
        names = columns(results)
        width = 0.8 / len(names)
        for index, name in enumerate(names):
            places = [i + (index - (len(names) - 1) / 2) * width for i in range(len(results))]
            axis.bar(places, [r.figure(name) or 0.0 for r in results], width, label=name)
        marks = [(i, r) for i, r in enumerate(results) if r.yardstick]
        for i, result in marks:
            label = result.yardstick if i == marks[0][0] else None
            axis.hlines(result.yardstick_rate, i - 0.45, i + 0.45, colors="black", label=label)
        axis.set_xticks(range(len(results)), [f"{r.shape}\n{r.dtype}" for r in results])
        axis.set_title(title)
        axis.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")
    about = record["machine"]
    figure.suptitle(f"{about['gpu']}, torch {about['torch']}, {about['date']}, {about['commit']}")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
