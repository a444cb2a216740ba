"""`python -m benchmarks.readme [--check]`: writes README's tables from the checked-in records.

The figures in README.md stand between two markers and are never typed: they are what
`python -m benchmarks --record` measured. The picture above them is drawn beside the record, where
there is matplotlib. `--check` changes nothing and exits 1 when the text differs.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import defaultdict
from pathlib import Path

from benchmarks import overview, records
from benchmarks.bench_host import promised
from benchmarks.harness import Result
from benchmarks.records import Records
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


def other_runs(found: Records) -> str:
    """Which families, or cases of others, have their figures from another run, and which one."""
    return "".join(
        f"{'; '.join(names)}: {date}, commit `{commit}`; clocks as found: {clocks}. "
        for (date, commit, clocks), names in records.from_other_runs(found).items()
    )


def render(found: Records) -> str:
    """The whole generated section, markers excluded."""
    about = records.main_run(found)
    every = [result for record in found.values() for result in records.results(record)]
    methods = [
        text
        for start, text in METHODS.items()
        if any(result.method.startswith(start) for result in every)
    ]
    parts = [
        f"{about['gpu']}, driver {about['driver']}, CUDA {about['cuda']}, torch {about['torch']}, "
        f"triton {about['triton']}; {about['date']}, commit `{about['commit']}`; clocks as found: "
        f"{about['clocks']}. {other_runs(found)}"
        "Every result was checked against float64 before it was timed. " + " ".join(methods),
        "![Memory-bound ops, beside a copy and their peers]"
        f"(benchmarks/records/{file_name(about)}.svg)",
    ]
    groups: dict[str, list[Result]] = defaultdict(list)
    skipped: dict[str, str] = {}
    for result in every:
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
    where = records.folder()
    if where is None:
        print(
            "benchmarks.readme: no record in benchmarks/records; make one on a GPU with "
            "`python -m benchmarks --record`."
        )
        return 2
    readme = ROOT / "README.md"
    old = readme.read_text()
    found = records.load(where)
    new = rewritten(old, render(found))
    if "--check" in argv:
        return int(old != new)
    readme.write_text(new)
    if importlib.util.find_spec("matplotlib"):
        overview.draw(found, where.with_suffix(".svg"))
    else:
        print("no picture: matplotlib is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
