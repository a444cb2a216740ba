"""What the files of tests cost: the dearest begin first, so that no core idles at the end.

Their seconds are those of processors, of pytest's process and of those whose end it has awaited,
such as compilers: waiting for a processor that others use is not in them.
"""

import collections
import json
import os
from pathlib import Path

import pytest

from build_tools import settings

ATTRIBUTE = "cpu_seconds"  # of a report: of a test's setup, call or teardown

# Of a tree where no test has run yet: ends of the names of files that wait for compilers for a
# minute or more. Of one kind, those with the most tests begin.
LONG = (
    "_mistakes",
    "test_tiles",
    "test_job_simulator",
    "test_conformance_simulator",
    "test_quoted_reports_simulator",
    "test_fuzz_simulator",
    "test_package",
    "test_train_gpt2",
    "test_headers",
)


class Clock:
    """What tests that follow each other in a process have cost, one after the other."""

    def __init__(self) -> None:
        """Begins now."""
        self._mark = spent()

    def start(self) -> None:
        """Leaves out what was before, such as collecting tests."""
        self._mark = spent()

    def lap(self) -> float:
        """Returns the processors' seconds since the last lap."""
        before, self._mark = self._mark, spent()
        return self._mark - before


def spent() -> float:
    """Returns the processors' seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def path() -> Path:
    """Returns the file that has the seconds of each file of tests, when it ran last."""
    return settings.build_dir() / "test_seconds.json"


def read() -> dict[str, float]:
    """Returns the seconds of each file of tests that has run, by its path in the repository."""
    try:
        return json.loads(path().read_text())
    except (OSError, ValueError):
        return {}


def of_files(stats: dict[str, list]) -> dict[str, float]:
    """Returns the seconds of each file, from the reports of pytest's terminal."""
    seconds: dict[str, float] = collections.defaultdict(float)
    for reports in stats.values():
        for report in reports:
            if hasattr(report, ATTRIBUTE) and hasattr(report, "nodeid"):
                seconds[report.nodeid.split("::")[0]] += getattr(report, ATTRIBUTE)
    return dict(seconds)


def keep(config: pytest.Config, seconds: dict[str, float]) -> None:
    """Writes the seconds of a session that ran whole files."""
    if seconds and not config.option.keyword and not any("::" in one for one in config.args):
        path().parent.mkdir(parents=True, exist_ok=True)
        path().write_text(json.dumps(read() | seconds, indent=1, sort_keys=True))


def order(items: list[pytest.Item]) -> None:
    """Sorts tests by their files, the longest first; those of a file keep their order."""
    known = read()
    tests = collections.Counter(item.path for item in items)

    def rank(item: pytest.Item) -> tuple[float, int, int]:
        file = item.nodeid.split("::")[0]
        if file in known:
            return -known[file], 0, 0
        kinds = (i for i, end in enumerate(LONG) if item.path.stem.endswith(end))
        kind = next(kinds, None)
        return (0.0, 0, 0) if kind is None else (-1e9, kind, -tests[item.path])

    items.sort(key=rank)
