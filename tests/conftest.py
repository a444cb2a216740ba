"""Tiers, GPU skips, seeds, and the line that reproduces a failure.

Tiers (`--tier N` runs one): 1 tests/test_*.py and tests/build; 2 the ops on the CPU, integrations,
demos, benchmarks and what tests/stress is made of; 3 tests/kittens (the tile layer),
tests/conformance, tests/mutation and `*_simulator.py`; 4 tests/ptxas; 5 marked `gpu`.
"""

import functools
import os
import zlib
from pathlib import Path

import pytest
import torch

import configs
from tests.tools import cached_results, device_memory, durations, starting

TESTS = Path(__file__).parent
TIER_OF_FOLDER = {
    "": 1,
    "build": 1,
    "families": 2,
    "tools": 2,
    "fuzz": 2,
    "ops": 2,
    "integrations": 2,
    "testing": 2,
    "typing": 2,
    "demos": 2,
    "benchmarks": 2,
    "stress": 2,
    "conformance": 3,
    "kittens": 3,
    "mutation": 3,
    "ptxas": 4,
}
GPU_TIER, SIMULATOR_TIER = 5, 3
CLOCK = durations.Clock()


def pytest_addoption(parser):
    parser.addoption("--tier", type=int, choices=range(1, 6), help="run one tier of tests")
    cached_results.add_options(parser)


def pytest_configure(config):
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    torch.set_num_threads(max(1, 2 // workers))
    starting.again_after_bad_address()
    cached_results.begin(config)


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.get_closest_marker("tier") is None:
            item.add_marker(pytest.mark.tier(tier_of(item)))
        if item.get_closest_marker("gpu") is not None and no_gpu():
            item.add_marker(pytest.mark.skip(reason=no_gpu()))
    cached_results.leave_out(config, items)
    durations.order(items)
    wanted = config.getoption("--tier")
    if wanted is None:
        return
    others = [item for item in items if item.get_closest_marker("tier").args[0] != wanted]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item.get_closest_marker("tier").args[0] == wanted]


def tier_of(item) -> int:
    """The tier of a test that names none: by its marker, its file, its folder."""
    if item.get_closest_marker("gpu") is not None:
        return GPU_TIER
    if "_simulator" in item.path.stem:
        return SIMULATOR_TIER
    parts = item.path.relative_to(TESTS).parts
    return TIER_OF_FOLDER[parts[0] if len(parts) > 1 else ""]


@functools.cache
def no_gpu() -> str:
    """Why the tests marked `gpu` cannot run; "" when they can."""
    if not torch.cuda.is_available():
        return "no GPU that torch can use"
    from thunderkittens import _C

    reasons = [_C.why_not(op, 0) for kernel in configs.KERNELS for op in kernel.ops]
    return "" if None in reasons else reasons[0]


@pytest.fixture(autouse=True)
def seed(request):
    """Seeds torch with a number of the test's own: alone or among others, it sees the same data."""
    number = zlib.crc32(request.node.name.encode())
    torch.manual_seed(number)
    return number


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol():
    CLOCK.start()
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item):
    yield
    if item.get_closest_marker("gpu") is not None:
        device_memory.give_back()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    seconds = CLOCK.lap()
    report = (yield).get_result()
    setattr(report, durations.ATTRIBUTE, seconds)  # which xdist sends along
    if report.failed:
        report.sections.append(("reproduce", f"python -m pytest '{item.nodeid}'"))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Of xdist: a process has ended."""
    cached_results.hear(node.config, getattr(node, "workeroutput", {}))


def pytest_sessionfinish(session, exitstatus):
    """That all tests have passed before is no failure."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and cached_results.count(session.config):
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter):
    """Where the time went: what a family costs is to be seen at each run."""
    config, stats = terminalreporter.config, terminalreporter.stats
    seconds = durations.of_files(stats)
    durations.keep(config, cached_results.whole(config, seconds))
    cached_results.keep(config, stats)
    cached = cached_results.count(config)
    if cached:
        terminalreporter.write_line(
            f"{cached} tests not run: they passed with the same files (ARGS=--no-cached-results)"
        )
    dearest = sorted(seconds.items(), key=lambda item: -item[1])[:25]
    if sum(seconds.values()) < 60:
        return
    terminalreporter.section("processors' seconds of the dearest files")
    for path, time in dearest:
        terminalreporter.write_line(f"{time:7.1f}  {path}")
    terminalreporter.write_line(f"{sum(seconds.values()):7.1f}  all, of all processes")
