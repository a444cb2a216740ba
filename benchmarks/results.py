"""`python -m benchmarks.results [--check]`: writes RESULTS.md and the pictures from the records.

The figures in RESULTS.md are never typed: they are what `python -m benchmarks --record` measured.
So is README's picture, and, where there is matplotlib, that of all memory-bound ops. `--check`
changes nothing and exits 1 when a text differs.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks import headline, overview, records
from benchmarks.bench_host import promised
from benchmarks.harness import TIMES, Result, load
from benchmarks.records import Records
from benchmarks.report import columns, figure_text, file_name

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"
METHODS = {  # how a Result's `method` begins: what RESULTS.md says of it
    "CUDA graph": "Where our call takes under 30 µs, or is one that decoding has in CUDA graphs, "
    "all are timed as replays of a CUDA graph over rotating buffers.",
    "median": "Where else it takes 30 µs or more, each call runs alone with the L2 cache flushed.",
    "sustained": "Where FLOPs are the limit, contenders run in turn under lasting load.",
    "host time": "Host times are taken with the GPU's queue empty.",
    "token to token": "Generating is timed on the host, from token to token: a run's median.",
    "warm-up": "Warm-up is what a process's first three steps take beyond three of the rest.",
}
HEAD = """\
# Results

What [the records of the last GPU runs](records) hold, written by `python -m benchmarks.results`.
`make bench` measures again, and skips peers that are not installed. TB/s are the bytes that any
implementation must move, TFLOP/s the operations that it must do, per time. Beside each figure
stands what the machine itself does in the same run: a copy of as many bytes, or a large matrix
product. Every op's result was checked against float64 before it was timed. The best figure of a
line is bold. What was tried, predicted and measured on the way is told in {notes}."""


def row(cells: list[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def table(results: list[Result]) -> str:
    """One op's results (one unit): contenders across, shapes down, the best figure in bold."""
    names = columns(results)
    of_host = results[0].unit == "µs"
    yardstick = "limit" if of_host else results[0].yardstick
    digits = 2 if results[0].unit == "TB/s" else 0
    heads = ["op", "mode"] if of_host else ["shape", "dtype"]
    figures = [*names, yardstick] if yardstick else names
    lines = [row([*heads, *figures]), row(["---", "---", *["--:" for _ in figures]])]
    for result in results:
        cells = [result.op if of_host else result.shape.replace(" x ", " × "), result.dtype]
        best = min(result.seconds.values())
        for name in names:
            text = figure_text(result, name)
            cells.append(f"**{text}**" if result.seconds.get(name) == best else text)
        if yardstick:
            rate = f"{result.yardstick_rate:.{digits}f}" + (" µs" if of_host else "")
            is_shown = result.yardstick and (not of_host or promised(result.op))
            cells.append(rate if is_shown else "–")
        lines.append(row(cells))
    title = "Time per call on the host" if of_host else f"`{results[0].op}`: {results[0].unit}"
    if results[0].unit not in TIMES:
        title += " (time)"
    return "\n".join([f"### {title}", "", *lines])


def provenance(record: dict[str, Any]) -> str:
    """The machine, the versions, the date and the commit of a record's figures."""
    about = record["machine"]
    text = (
        f"{about['gpu']}, driver {about['driver']}, CUDA {about['cuda']}, torch {about['torch']}, "
        f"triton {about['triton']}; {about['date']}, commit `{about['commit']}`; clocks as found: "
        f"{about['clocks']}."
    )
    for run in record.get("other_runs", ()):
        text += (
            f" But {'; '.join(run['cases'])}: {run['date']}, commit `{run['commit']}`; clocks as "
            f"found: {run['clocks']}."
        )
    return text


def section(family: str, record: dict[str, Any]) -> str:
    """A family: where its figures come from, what one has to know of them, and the tables."""
    parts = [f"## {family.replace('_', ' ')}", provenance(record)]
    parts += [text for text in (getattr(load(family), "NOTE", None), record.get("since")) if text]
    groups: dict[str, list[Result]] = defaultdict(list)
    skipped = set()
    for result in records.results(record):
        groups["host" if result.unit == "µs" else result.op].append(result)
        skipped |= {f"{name} ({why})" for name, why in result.skipped.items()}
    parts += [table(results) for results in groups.values()]
    if skipped:
        parts.append("Without a figure: " + "; ".join(sorted(skipped)) + ".")
    return "\n\n".join(parts)


def render(found: Records) -> str:
    """RESULTS.md."""
    every = [result for record in found.values() for result in records.results(record)]
    methods = [
        text
        for start, text in METHODS.items()
        if any(result.method.startswith(start) for result in every)
    ]
    about = next(iter(found.values()))["machine"]
    told = sorted(path.stem for path in FOLDER.glob("*.md") if path != RESULTS)
    notes = ", ".join(f"[{name}]({name}.md)" for name in told)
    parts = [
        f"{HEAD.format(notes=notes)}\n\n{' '.join(methods)}",
        f"![Memory-bound ops, beside a copy and their peers](records/{file_name(about)}.svg)",
        *(section(family, record) for family, record in found.items()),
    ]
    return "\n\n".join(parts) + "\n"


def main(argv: list[str]) -> int:
    """0: written, or already equal; 1: `--check` found a difference; 2: there is no record."""
    where = records.folder()
    if where is None:
        print(
            "benchmarks.results: no record in benchmarks/records; make one on a GPU with "
            "`python -m benchmarks --record`."
        )
        return 2
    found = records.load(where)
    texts = {RESULTS: render(found), headline.PICTURE: headline.draw(found)}
    if "--check" in argv:
        return int(any(not p.is_file() or p.read_text() != text for p, text in texts.items()))
    for path, text in texts.items():
        path.write_text(text)
    if importlib.util.find_spec("matplotlib"):
        overview.draw(found, where.with_suffix(".svg"))
    else:
        print("no picture of all memory-bound ops: matplotlib is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
