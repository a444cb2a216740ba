"""Builds and runs the C++ tests of the tile layer: each `tests/kittens/**/test_*.cu` is a program.

Built by the C++ compiler, a program runs in the simulator, once under each policy, of which one is
in race mode; built by nvcc, it runs on the GPU. `tests/kittens/sim` tests the simulator itself, and
has no GPU side.
"""

import re
import subprocess
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from build_tools import cuda, settings, simulator
from build_tools.settings import ROOT, BuildError
from tests.tools.environment import environment

FOLDER = ROOT / "tests/kittens"
POLICIES = ("eager", "lazy", "random:1", "random:2,race")
GPU = "gpu"
TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Outcome:
    """What became of one run of one program.

    Attributes:
        program: Its source, relative to FOLDER.
        where: A policy of the simulator, or GPU.
        passed: How many of its tests passed.
        failed: How many did not; a program that crashes or hangs counts as one more.
        seconds: How long it ran.
        report: What it printed, but for the tests that passed; "" where all of them did.
    """

    program: str
    where: str
    passed: int
    failed: int
    seconds: float
    report: str


def programs(where: str = "") -> list[str]:
    """Returns the programs that can run in a place, by their sources relative to FOLDER."""
    names = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("test_*.cu"))
    return [name for name in names if where != GPU or not name.startswith("sim/")]


def build(names: Iterable[str], where: str) -> dict[str, Path]:
    """Builds programs, as many at a time as the machine can, and returns their executables."""
    names = list(names)
    paths = [FOLDER / name for name in names]
    built = cuda.build_tests(paths) if where == GPU else simulator.build_tests(paths, race=True)
    return dict(zip(names, built, strict=True))


def run(name: str, executable: Path, where: str) -> Outcome:
    """Runs a program."""
    setting = {} if where == GPU else {"KITTENS_SIM": where}
    start = time.monotonic()
    try:
        done = subprocess.run(
            [executable],
            env=environment(**setting),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
        )
        text, end = done.stdout, f"exits with {done.returncode}"
        good = done.returncode == 0
    except subprocess.TimeoutExpired as stopped:
        text = (stopped.stdout or b"").decode(errors="replace")
        end, good = f"has not ended after {TIMEOUT_SECONDS} s", False
    seconds = time.monotonic() - start
    counts = re.search(r"^(\d+) passed, (\d+) failed$", text, re.MULTILINE)
    passed, failed = (int(counts[1]), int(counts[2])) if counts else (0, 0)
    if good and counts:
        return Outcome(name, where, passed, failed, seconds, "")
    prefix = "".join(f"{key}={value} " for key, value in setting.items())
    lines = [line for line in text.splitlines() if not line.startswith("ok ")]
    report = "\n".join([f"{prefix}{executable} ({name}) {end}:", *lines])
    return Outcome(name, where, passed, max(failed, 1), seconds, report)


def suite(filters: list[str]) -> int:
    """Builds and runs the programs, in the simulator and where one is there on the GPU.

    Args:
        filters: Parts of names, any of which a program's must contain; empty for all programs.

    Returns:
        An exit status: 0 if all tests of all programs passed.
    """
    places = {"simulator": POLICIES}
    gpu, reason = _gpu()
    if gpu:
        places[gpu] = (GPU,)
    else:
        print(f"Not on a GPU: {reason}", flush=True)
    start = time.monotonic()
    built = {}
    for place, ways in places.items():
        names = [name for name in programs(ways[0]) if _matches(name, filters)]
        built[place] = build(names, ways[0])
    if not any(built.values()):
        raise BuildError(
            f"no program of {FOLDER.relative_to(ROOT)} is named {' or '.join(filters)}"
        )
    middle = time.monotonic()
    outcomes = {
        place: _run_all(built[place], ways, 1 if ways == (GPU,) else settings.jobs())
        for place, ways in places.items()
    }
    _summarize(outcomes, middle - start, time.monotonic() - middle)
    return int(any(outcome.failed for runs in outcomes.values() for outcome in runs))


def _matches(name: str, filters: list[str]) -> bool:
    return not filters or any(text in name for text in filters)


def _run_all(executables: dict[str, Path], ways: tuple[str, ...], workers: int) -> list[Outcome]:
    """Runs each program in each way, and prints a line per program."""
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(workers) as pool:
        pending = {
            name: [pool.submit(run, name, executable, way) for way in ways]
            for name, executable in executables.items()
        }
        for name, futures in pending.items():
            runs = [future.result() for future in futures]
            outcomes += runs
            mark = "FAILED" if any(one.failed for one in runs) else "ok    "
            times = ", ".join(f"{one.where} {one.seconds:.1f} s" for one in runs)
            tests = max(one.passed + one.failed for one in runs)
            print(f"{mark} {name:<36} {tests:4} tests  {times}", flush=True)
            for one in runs:
                if one.report:
                    print(one.report, flush=True)
    return outcomes


def _summarize(outcomes: dict[str, list[Outcome]], building: float, running: float) -> None:
    print(f"built in {building:.0f} s, ran in {running:.0f} s")
    for place, runs in outcomes.items():
        ways = tuple(dict.fromkeys(one.where for one in runs))
        how = f" under {', '.join(ways)}" if ways != (GPU,) else ""
        count = len({one.program for one in runs})
        passed, failed = sum(one.passed for one in runs), sum(one.failed for one in runs)
        print(f"{place}: {count} programs{how}: {passed} passed, {failed} failed", flush=True)


def _gpu() -> tuple[str, str]:
    """Returns the name of the GPU to run on and "", or "" and why there is none."""
    import torch

    toolkit, reason = cuda.toolkit()
    if toolkit is None:
        return "", reason
    if not torch.cuda.is_available():
        return "", "none that torch can use"
    name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    if capability != (9, 0):
        return "", f"{name} is of compute capability {capability[0]}.{capability[1]}, needed 9.0"
    return name, ""
