"""What each family of kernels costs whoever builds and tests all: seconds, kernels, bytes.

All seconds are of processors, so that waiting for one is not in them: where others work on the same
machine, a file has taken 60 times as long by the clock, and twice as many of these. The compiler's
are those that it took for the objects that are there, when and where they were made; the tests' are
of their last run. What runs at a time shares them: a family costs the sum divided by how many that
are. `python -m build_tools costs` shows the table, and with --write keeps what needs no clock,
kernels and bytes, in tests/families/<family>/costs.json, with which a test compares them; and in
build_tools/compile_seconds.json the seconds of each file, from which a build says how long it will
take.
"""

import json
import re
from pathlib import Path

import configs
from build_tools import build_info, compile, cuda, ops, progress, resources, settings, simulator
from build_tools.job import Job
from build_tools.settings import ROOT, BuildError

BUDGET_SECONDS = 150  # of a family, in a tree where nothing is built
TEST_SECONDS = "test_seconds.json"  # in the build folder: of each file of tests
COLUMNS = ("torch", "GPU", "simulator", "race mode", "tests")


def jobs() -> dict[str, dict[str, list[Job]]]:
    """Returns the compilations of each family, by what they are for."""
    found = {kernel.name: {name: [] for name in COLUMNS[:-1]} for kernel in configs.KERNELS}
    toolkit, _ = cuda.toolkit()
    header = build_info.write(toolkit)
    for job in (*ops.host_jobs(), *ops.glue_jobs(header)):
        if job.name.startswith("csrc/kernels/"):
            found[job.name.split("/")[2]]["torch"].append(job)
    for job in cuda.kernel_jobs(toolkit) if toolkit else ():
        found[job.kernel.split("/")[0]]["GPU"].append(job)
    try:
        headers = simulator.headers()
    except BuildError:
        return found
    for family, columns in found.items():
        for path in sorted(ROOT.glob(f"csrc/kernels/{family}/*.cu")):
            columns["simulator"].append(simulator.fast_kernel_job(headers, path))
            columns["race mode"].append(simulator.fast_kernel_job(headers, path, race=True))
    return found


def family_of(test: str) -> str | None:
    """Returns the family that a file of tests is of: by its folder, else by its name."""
    path = Path(test)
    names = [kernel.name for kernel in configs.KERNELS]
    by_folder = [name for name in names if name in path.parts[:-1]]
    by_name = [name for name in names if re.search(rf"(^|_){name}(_|$)", path.stem)]
    # The longest: test_linear_attention is not attention's.
    return max(by_folder or by_name, key=len, default=None)


def kept_path(family: str) -> Path:
    """Returns the file of what a family is known to cost."""
    return ROOT / f"tests/families/{family}/costs.json"


def sizes(columns: dict[str, list[Job]]) -> dict[str, int]:
    """Returns a family's kernels for the GPU and the bytes of its objects, of what is built.

    Args:
        columns: Of `jobs`.
    """
    found = {}
    for name in COLUMNS[1:-1]:
        of = columns[name]
        if of and all(job.output.is_file() for job in of):
            found[f"bytes, {name}"] = sum(job.output.stat().st_size for job in of)
    if "bytes, GPU" in found:
        reports = (job.log_path.read_text() for job in columns["GPU"])
        found["kernels"] = sum(len(resources.kernels(report)) for report in reports)
    return found


def write() -> None:
    """Keeps what each family costs, where it is built."""
    for family, columns in jobs().items():
        path = kept_path(family)
        known = json.loads(path.read_text()) if path.is_file() else {}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(known | sizes(columns), indent=2, sort_keys=True) + "\n")

    known = progress.recorded()
    now = {job.name: known.get(job.name) or 0.0 for job in build_jobs()}
    now |= {job.name: spent for job in build_jobs() if (spent := round(compile.cost(job), 1))}
    kept = {name: spent for name, spent in now.items() if spent}
    progress.SECONDS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def build_jobs() -> list[Job]:
    """Returns the compilations of the libraries and of the simulator."""
    toolkit, _ = cuda.toolkit()
    header = build_info.write(toolkit)
    found = [*ops.glue_jobs(header), *ops.host_jobs()]
    found += [need for need in dict.fromkeys(need for job in found for need in job.needs)]
    if toolkit is not None:
        found += [*cuda.kernel_jobs(toolkit), cuda.device_job(toolkit)]
    try:
        headers = simulator.headers()
    except BuildError:
        return found
    kernels = sorted(ROOT.glob("csrc/kernels/*/*.cu"))
    found += [simulator.fast_kernel_job(headers, path) for path in kernels]
    return found + [simulator.fast_kernel_job(headers, path, race=True) for path in kernels]


def seconds() -> dict[str, dict[str, float]]:
    """Returns the seconds of each family, by what they are for."""
    found = {
        family: {name: sum(map(compile.cost, of)) for name, of in columns.items()} | {"tests": 0.0}
        for family, columns in jobs().items()
    }
    try:
        tests = json.loads((settings.build_dir() / TEST_SECONDS).read_text())
    except (OSError, ValueError):
        tests = {}
    for test, spent in tests.items():
        family = family_of(test)
        if family:
            found[family]["tests"] += spent
    return found


def table() -> str:
    """Returns the seconds of each family beside its budget, and which families exceed it."""
    workers = settings.jobs()
    lines = [
        f"What each family costs: processors' seconds of its compilers and tests; together, "
        f"{workers} at a time, against {BUDGET_SECONDS} s",
        " " * 18 + "".join(f"{name:>12}" for name in (*COLUMNS, "together")),
    ]
    for family, spent in seconds().items():
        wall = sum(spent.values()) / workers
        mark = "  over the budget" if wall > BUDGET_SECONDS else ""
        cells = "".join(f"{spent[name]:12.1f}" for name in COLUMNS)
        lines.append(f"  {family:<16}{cells}{wall:12.1f}{mark}")
    return "\n".join(lines)
