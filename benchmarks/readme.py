"""`python -m benchmarks.readme [--check]`: writes README's tables from the checked-in record.

The figures in README.md stand between two markers and are never typed: they are what
`python -m benchmarks --record` measured. The picture above them is drawn beside the record, where
there is matplotlib. `--check` changes nothing and exits 1 when the text differs.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks import overview
from benchmarks.bench_host import promised
from benchmarks.harness import Result
from benchmarks.report import columns, figure_text, file_name

ROOT = Path(__file__).parent.parent
METHODS = {  # how a Result's `method` begins: what README says of it
    "CUDA graph": "Where our call takes under 30 µs, all are timed as replays of a CUDA graph over "
    "rotating buffers.",
    "median": "Where it takes 30 µs or more, each call runs alone with the L2 cache flushed.",
    "sustained": "Where FLOPs are the limit, contenders run in turn under lasting load.",
    "host time": "Host times are taken with the GPU's queue empty.",
}
BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"


def record_path() -> Path | None:
    """The one checked-in record, None before there is one."""
    found = sorted((ROOT / "benchmarks" / "records").glob("*.json"))
    return found[-1] if found else None


def row(cells: list[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def table(results: list[Result]) -> str:
    """One op's results (one unit): contenders across, shapes down, the best figure in bold."""
    names = columns(results)
    timed = results[0].unit == "µs"
    yardstick = "limit" if timed else f"{results[0].yardstick} in the same run"
    digits = 2 if results[0].unit == "TB/s" else 0
    lines = [
        row(["shape" if not timed else "op", "dtype" if not timed else "mode", *names, yardstick]),
        row(["---", "---", *["--:" for _ in [*names, yardstick]]]),
    ]
    for result in results:
        cells = [result.op if timed else result.shape.replace(" x ", " × "), result.dtype]
        best = min(result.seconds.values())
        for name in names:
            text = figure_text(result, name)
            cells.append(f"**{text}**" if result.seconds.get(name) == best else text)
        rate = f"{result.yardstick_rate:.{digits}f}" + (" µs" if timed else "")
        cells.append(rate if result.yardstick and (not timed or promised(result.op)) else "–")
        lines.append(row(cells))
    title = "Host time per call" if timed else f"`{results[0].op}`, {results[0].unit} (time)"
    return "\n".join([f"**{title}**", "", *lines])


def earlier(record: dict[str, Any]) -> str:
    """Which families, or cases of others, have their figures from an earlier run, and which one.

    Those cases of its families that the record has measured again are `but_for`.
    """
    parts = []
    for run in record.get("earlier", ()):
        families = "; ".join(run["families"])
        if run.get("but_for"):
            families += f" (but for {'; '.join(run['but_for'])})"
        names = "; ".join([*filter(None, [families]), *run.get("cases", ())])
        parts.append(
            f"{names}: {run['date']}, commit `{run['commit']}`; clocks as found: {run['clocks']}. "
        )
    return "".join(parts)


def render(record: dict[str, Any]) -> str:
    """The whole generated section, markers excluded."""
    about = record["machine"]
    used = [entry["method"] for results in record["results"].values() for entry in results]
    methods = [
        text for start, text in METHODS.items() if any(name.startswith(start) for name in used)
    ]
    parts = [
        f"{about['gpu']}, driver {about['driver']}, CUDA {about['cuda']}, torch {about['torch']}, "
        f"triton {about['triton']}; {about['date']}, commit `{about['commit']}`; clocks as found: "
        f"{about['clocks']}. {earlier(record)}"
        "Every result was checked against float64 before it was timed. " + " ".join(methods),
        "![Memory-bound ops, beside a copy and their peers]"
        f"(benchmarks/records/{file_name(about)}.svg)",
    ]
    groups: dict[str, list[Result]] = defaultdict(list)
    skipped: dict[str, str] = {}
    for results in record["results"].values():
        for entry in results:
            result = Result(**entry)
            groups["host" if result.unit == "µs" else result.op].append(result)
            skipped.update({f"{name} ({why})": name for name, why in result.skipped.items()})
    parts += [table(results) for results in groups.values()]
    if skipped:
        parts.append("Without a figure: " + "; ".join(sorted(skipped)) + ".")
    return "\n\n".join(parts)


def rewritten(readme: str, section: str) -> str:
    """The text of README.md with the section between its markers replaced."""
    head, rest = readme.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{section}\n{END}{tail}"


def main(argv: list[str]) -> int:
    """0: written, or already equal; 1: `--check` found a difference; 2: there is no record."""
    path = record_path()
    if path is None:
        print(
            "benchmarks.readme: no record in benchmarks/records; make one on a GPU with "
            "`python -m benchmarks --record`."
        )
        return 2
    readme = ROOT / "README.md"
    old = readme.read_text()
    record = json.loads(path.read_text())
    new = rewritten(old, render(record))
    if "--check" in argv:
        return int(old != new)
    readme.write_text(new)
    if importlib.util.find_spec("matplotlib"):
        overview.draw(record, path.with_suffix(".svg"))
    else:
        print("no picture: matplotlib is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
