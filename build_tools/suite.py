"""Builds what the tests of a tier need, and runs them."""

import importlib.util
import subprocess
import sys
import time

from build_tools import costs, environment, ops, results, settings, simulator
from build_tools.settings import ROOT, BuildError

TIERS = {
    1: "structure, build, documents",
    2: "ops on the CPU",
    3: "tile layer and kernels in the simulator",
    4: "nvcc's output for the GPU",
    5: "kernels on a GPU",
}


def run(tier: int | None, arguments: list[str]) -> int:
    """Builds and tests.

    Args:
        tier: The tier to run, or None for all that this machine can.
        arguments: Further arguments for pytest.

    Returns:
        The exit status of pytest.
    """
    ops.build()
    if tier in (None, 3):
        try:
            simulator.build()
        except BuildError as error:
            if "headers" not in str(error):
                raise
            print(f"Tests in the simulator are skipped: {error}", flush=True)
    what = f"tier {tier} ({TIERS[tier]})" if tier else "every tier that this machine can run"
    print(f"Running {what}", flush=True)
    selection = [f"--tier={tier}"] if tier else []
    options = ["-q", "--cached-results", *_processes(tier), *selection]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    variables = {results.SINCE: str(time.time()), **environment.variables()}
    status = subprocess.run(command, cwd=ROOT, env=variables).returncode
    if tier is None and not arguments:
        print(costs.table(), flush=True)
    return status


def _processes(tier: int | None) -> list[str]:
    """Returns how many processes share the tests, a file each: one where they share a GPU."""
    workers = settings.jobs()
    on_gpu = tier in (None, 5) and environment.has_driver()
    if workers == 1 or on_gpu or importlib.util.find_spec("xdist") is None:
        return []
    # In the order of tests/tools/durations.py, not of how many tests they have.
    return ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]
