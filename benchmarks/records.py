"""The checked-in records: `benchmarks/records/<gpu>/<family>.json`, each of a run of its own.

A file has `machine`, the run (GPU, driver, versions, date, commit, clocks as found), and `results`.
Where some of its results were measured in other runs, `other_runs` has of each the date, commit and
clocks, and its `cases`, `<op>, <shape>`. Where a kernel has changed since, `since` says what that
did to the figures, until the next run's record takes the place of this one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.harness import Result
from benchmarks.report import file_name

FOLDER = Path(__file__).parent / "records"

Records = dict[str, dict[str, Any]]  # by family


def folder() -> Path | None:
    """The records of the one GPU that there are figures of, None before there are any."""
    found = sorted(path.parent for path in FOLDER.glob("*/*.json"))
    return found[-1] if found else None


def load(where: Path) -> Records:
    """Every family's record."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(where.glob("*.json"))}


def of_run(record: dict[str, Any]) -> Records:
    """What one run has measured, of several families, as their records."""
    about, results = record["machine"], record["results"]
    return {family: {"machine": about, "results": some} for family, some in results.items()}


def save(records: Records) -> list[Path]:
    """Writes records in the place of those that their families had."""
    written = []
    for family, record in records.items():
        path = FOLDER / file_name(record["machine"]) / f"{family}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        written.append(path)
    return written


def results(record: dict[str, Any]) -> list[Result]:
    """A record's results."""
    return [Result(**entry) for entry in record["results"]]
