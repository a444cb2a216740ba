"""Checks, and repairs, the form of the code: ruff for Python, clang-format for C++; mypy, types."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from build_tools.settings import ROOT, BuildError

PYTHON_PATHS = (
    "benchmarks",
    "build_tools",
    "configs.py",
    "demos",
    "docs",
    "setup.py",
    "tests",
    "thunderkittens",
)
TYPED_PATHS = ("thunderkittens", "tests/typing/user.py")
CXX_PATTERNS = (
    "benchmarks/**/*.cu",
    "csrc/**/*.h",
    "csrc/**/*.cuh",
    "csrc/**/*.hpp",
    "csrc/**/*.cpp",
    "csrc/**/*.cu",
    "demos/**/*.h",
    "demos/**/*.cuh",
    "demos/**/*.cpp",
    "demos/**/*.cu",
    "tests/**/*.h",
    "tests/**/*.cuh",
    "tests/**/*.hpp",
    "tests/**/*.cpp",
    "tests/**/*.cu",
)

SUBJECT_LENGTH = 72  # of a commit: what git's own tools and most readers show of a line
SUBJECTS_SINCE = "2026-11-28T16:30:00Z"  # earlier commits stay as they are


def find(tool: str) -> str | None:
    """Returns the path of a tool: beside the interpreter first, then on PATH."""
    beside = Path(sys.executable).parent / tool
    return str(beside) if beside.exists() else shutil.which(tool)


def python_commands(repair: bool = False) -> list[list[str]]:
    """Returns ruff's command lines."""
    paths = [path for path in PYTHON_PATHS if (ROOT / path).exists()]
    return [
        ["check", *(["--fix"] if repair else []), *paths],
        ["format", *([] if repair else ["--check"]), *paths],
    ]


def types_command() -> list[str]:
    """Returns mypy's command line; what it keeps makes the next run one of a second."""
    return ["--sqlite-cache", "--cache-dir", "build/mypy", *TYPED_PATHS]


def why_untyped() -> str | None:
    """Returns why types cannot be checked here; None where they can."""
    if importlib.util.find_spec("torch") is None:
        return f"torch, whose types are needed, is not installed beside {sys.executable}"
    return None


def cxx_command(repair: bool = False) -> list[str]:
    """Returns clang-format's command line."""
    files = sorted(
        {str(path.relative_to(ROOT)) for pattern in CXX_PATTERNS for path in ROOT.glob(pattern)}
    )
    return [*(["-i"] if repair else ["--dry-run", "--Werror"]), *files]


def long_subjects(folder: Path = ROOT, since: str = SUBJECTS_SINCE) -> list[str]:
    """Returns hash and subject of the commits whose subjects are too long.

    Args:
        folder: Of the repository. A shallow clone is asked of the commits that it has; a folder
            without a history, such as an unpacked archive, has none.
        since: The date, as git has it, before which no commit counts.
    """
    if not (folder / ".git").exists() or shutil.which("git") is None:
        return []
    command = ["git", "log", "--no-merges", f"--since={since}", "--format=%h %s"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return [line for line in lines if len(line.partition(" ")[2]) > SUBJECT_LENGTH]


def check(repair: bool = False) -> None:
    """Runs every check.

    Args:
        repair: Changes the files instead of complaining, where a tool can.

    Raises:
        BuildError: A tool is missing or has complained.
    """
    failed = []
    commands = [("ruff", command) for command in python_commands(repair)]
    commands.append(("clang-format", cxx_command(repair)))
    skipped = "they cannot be repaired" if repair else why_untyped()
    if skipped is None:
        commands.append(("mypy", types_command()))
    elif not repair:
        print(f"mypy: skipped: {skipped}", flush=True)
    for tool, command in commands:
        path = find(tool)
        if path is None:
            raise BuildError(
                f"{tool}: found none, needed for `make lint`; install it with "
                f"`{sys.executable} -m pip install -r requirements/lint.txt`"
            )
        print(f"{tool} {' '.join(command[:2])} ...", flush=True)
        if subprocess.run([path, *command], cwd=ROOT).returncode != 0:
            failed.append(tool)
    for commit in [] if repair else long_subjects():
        print(f"git: a subject has at most {SUBJECT_LENGTH} characters: {commit}", flush=True)
        failed.append("git")
    if failed:
        raise BuildError(
            f"{' and '.join(dict.fromkeys(failed))} complained: `make format` "
            "repairs what can be repaired"
        )
