"""Tests that passed with what is there now are not run again.

`make test` asks for it; where CI is set (build_tools/results.py), and where git does not say what
the tree holds, every test runs. A result counts for the same contents of all files, but of the
files of tests for its own alone (none imports another), and for the same compilers, packages,
processor and variables. Tests for a GPU always run.
"""

import collections
import functools
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import pytest

from build_tools import content, environment, results, toolchain
from build_tools.settings import ROOT

VARIABLES = ("KITTENS_", "PYTORCH_", "THUNDERKITTENS_", "TORCH")  # that begin so
NOT_THESE = (results.SINCE, "THUNDERKITTENS_BUILD_DIR", "THUNDERKITTENS_CACHE_GIB")
FOUND = pytest.StashKey[dict[str, str]]()  # the keys of all files of tests, at the beginning
LEFT_OUT = pytest.StashKey[int]()


def add_options(parser: pytest.Parser) -> None:
    """Adds the two options."""
    about = {"store_true": "leave out tests that passed with the same files", "store_false": None}
    for option, action in zip(("--cached-results", "--no-cached-results"), about, strict=True):
        parser.addoption(option, action=action, dest="cached_results", help=about[action])


def begin(config: pytest.Config) -> None:
    """Notes what is there now: what is edited while tests run is not what they have tested."""
    config.stash[FOUND] = keys() if config.getoption("cached_results") else {}


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes those that passed from the tests."""
    known = {file: passed(key) for file, key in config.stash[FOUND].items()}
    cached = {
        item
        for item in items
        if item.nodeid in known.get(_file(item.nodeid), ())
        and item.get_closest_marker("gpu") is None
    }
    config.hook.pytest_deselected(items=[item for item in items if item in cached])
    items[:] = [item for item in items if item not in cached]
    config.stash[LEFT_OUT] = len(cached)
    if hasattr(config, "workeroutput"):  # a process of xdist, each of which collects all tests
        config.workeroutput["cached_results"] = len(cached)


def hear(config: pytest.Config, output: dict) -> None:
    """Takes note of what a process of xdist has left out."""
    config.stash[LEFT_OUT] = output.get("cached_results", 0)


def count(config: pytest.Config) -> int:
    """Returns how many tests were left out."""
    return config.stash.get(LEFT_OUT, 0)


def whole(config: pytest.Config, seconds: dict[str, float]) -> dict[str, float]:
    """Returns those of files of tests of which none was left out."""
    known = config.stash[FOUND]
    return {file: time for file, time in seconds.items() if not passed(known.get(file, ""))}


def keep(config: pytest.Config, stats: dict[str, list]) -> None:
    """Keeps which tests passed, from the reports of pytest's terminal."""
    if not config.stash[FOUND]:
        return
    failed = {report.nodeid for kind in ("failed", "error") for report in stats.get(kind, ())}
    tests = collections.defaultdict(set)
    for report in stats.get("passed", ()):
        if report.nodeid not in failed:
            tests[_file(report.nodeid)].add(report.nodeid)
    unchanged = config.stash[FOUND].items() & keys().items()
    for file, key in unchanged:
        if tests[file] - passed(key):
            results.write(key, {"passed": sorted(tests[file] | passed(key))})


def passed(key: str) -> set[str]:
    """Returns the tests of a file that are known to pass."""
    found = results.read(key) if key else None
    return set(found["passed"]) if found else set()


def keys() -> dict[str, str]:
    """Returns for each file of tests a hash of all that its results depend on, as it is now."""
    files = {name: content.of_file(ROOT / name) for name in _tree()}
    tests = [name for name in files if _has_tests(Path(name))]
    shared = [f"{name} {files[name]}" for name in sorted(files.keys() - {*tests})]
    variables = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name.startswith(VARIABLES) and name not in NOT_THESE
    ]
    all_else = content.of_words(*_machine(), *variables, *shared)
    return {name: content.of_words("tests", name, files[name], all_else) for name in tests}


@functools.cache
def _machine() -> tuple[str, ...]:
    """Returns what describes compilers, packages and processor."""
    cuda, reason = toolchain.find_cuda()
    tools = [toolchain.find_compiler().path, *([cuda.nvcc] if cuda else [])]
    packages = {f"{one.name} {one.version}" for one in importlib.metadata.distributions()}
    return (
        platform.python_version(),
        content.processor(),
        content.machine(),
        str(environment.has_driver()),
        reason,
        *map(content.version, tools),
        *sorted(packages),
    )


def _tree() -> set[str]:
    """Returns the files of the tree that git knows or would take; none where it does not say."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return set()
    return {name for name in done.stdout.split("\0") if (ROOT / name).is_file()}


def _has_tests(path: Path) -> bool:
    return path.parts[0] == "tests" and path.match("test_*.py")


def _file(nodeid: str) -> str:
    return nodeid.split("::")[0]
