"""Finds or makes the Python environment that the demo and the tests run in.

The interpreter that runs this is used as it is, and nothing is downloaded, where it holds the
pinned PyTorch: a container, a cluster's module, an active virtual environment. Elsewhere a
virtual environment in the repository gets the pinned packages, once.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from build_tools import settings, toolchain
from build_tools.settings import ROOT, BuildError

REQUIREMENTS = ROOT / "requirements"
STAMP = "thunderkittens-packages.txt"


def enter(purpose: str, torch: str | None = None) -> None:
    """Returns if this interpreter is the one to use; else runs the same command in that one.

    Args:
        purpose: "demo", "test", "lint" or "docs": the file of requirements/ to satisfy.
        torch: A version to use in place of the pinned one, in an environment of its own.
    """
    python = prepare(purpose, torch)
    if Path(python) == Path(sys.executable):
        return
    command = [python, "-m", "build_tools", *sys.argv[1:]]
    sys.stdout.flush()
    raise SystemExit(subprocess.run(command, cwd=ROOT, env=variables()).returncode)


def prepare(purpose: str, torch: str | None = None) -> str:
    """Returns the interpreter that holds the pinned packages, after installing what it lacks."""
    if torch and not re.fullmatch(r"\d+(\.\d+)+", torch):
        raise BuildError(f"TORCH must be a version such as 2.15.0, got {torch!r}")
    packages = requirements(purpose, torch)
    folder = ROOT / (f".venv-torch-{torch}" if torch and torch != pinned_torch() else ".venv")
    inside = Path(sys.prefix).resolve() == folder.resolve()
    if not inside and _holds(packages):
        missing = [package for package in packages if not _is_installed(package)]
        if missing and purpose == "demo":
            raise BuildError(
                f"demo: found no {', '.join(missing)} beside {sys.executable}, needed to run it; "
                f"install what it lacks with `{sys.executable} -m pip install -r "
                "requirements/demo.txt`"
            )
        if missing:
            print(
                f"Not installed beside {sys.executable}, what needs it is skipped: "
                f"{', '.join(missing)}",
                flush=True,
            )
        return sys.executable
    python = folder / "bin" / "python"
    stamp = folder / STAMP
    wanted = _fingerprint(packages)
    if not stamp.is_file() or wanted not in stamp.read_text().split() or not python.exists():
        _make(folder)
        size = " (with PyTorch, some 5 GB and minutes the first time)" if purpose != "lint" else ""
        print(f"Installing the pinned packages into {folder.name}{size}", flush=True)
        _pip(folder, packages)
        _add_repository(folder)
        done = stamp.read_text().split() if stamp.is_file() else []
        stamp.write_text("\n".join([*done, wanted]) + "\n")
    if purpose == "test" or (purpose == "demo" and (has_driver() or shutil.which("nvcc"))):
        _add_nvcc(folder)
    return str(python)


def requirements(purpose: str, torch: str | None = None) -> list[str]:
    """Returns the lines of a file of requirements/, with those that it refers to."""
    packages: list[str] = []
    for line in (REQUIREMENTS / f"{purpose}.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("-r "):
            packages += requirements(line[3:].removesuffix(".txt"), torch)
        elif line.startswith("torch==") and torch:
            packages.append(f"torch=={torch}")
        elif line:
            packages.append(line)
    return packages


def pinned_torch() -> str:
    """Returns the version of PyTorch that requirements/demo.txt pins."""
    text = (REQUIREMENTS / "demo.txt").read_text()
    return re.search(r"^torch==(.+)$", text, re.MULTILINE)[1]


def variables() -> dict[str, str]:
    """Returns the environment of what runs in the repository without being installed."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _holds(packages: list[str]) -> bool:
    """Whether this interpreter has what decides: the wanted PyTorch, or else all of it."""
    torch = [package for package in packages if package.startswith("torch==")]
    return all(_is_installed(package, exactly=True) for package in torch or packages)


def _is_installed(package: str, exactly: bool = False) -> bool:
    name, version = package.split("==")
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return not exactly or found.split("+")[0] == version


def _fingerprint(packages: list[str]) -> str:
    return hashlib.sha256("\n".join(packages).encode()).hexdigest()[:16]


def _make(folder: Path) -> None:
    """Makes a virtual environment, unless a working one is there."""
    python = folder / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", ""]).returncode == 0:
        return
    if sys.version_info < (3, 11):
        raise BuildError(
            f"Python: found {sys.version.split()[0]}, needed ≥ 3.11 for the pinned packages; "
            "name another one, as in `make PYTHON=python3.12 test`"
        )
    options = [] if _has_module("ensurepip") else ["--without-pip"]
    if options and not _has_module("pip"):
        raise BuildError(
            f"Python: found {sys.executable} without ensurepip and pip, needed one of them to make "
            "a virtual environment; install it with `apt-get install python3-venv`"
        )
    print(f"Making a virtual environment in {folder.name}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", *options, folder], check=True)


def _has_module(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def _pip(folder: Path, packages: list[str]) -> None:
    """Installs packages into a virtual environment, with its own pip or with this one."""
    python = str(folder / "bin" / "python")
    own = subprocess.run([python, "-c", "import pip"], capture_output=True).returncode == 0
    pip = [python, "-m", "pip"] if own else [sys.executable, "-m", "pip", "--python", python]
    command = [*pip, "--quiet", "--disable-pip-version-check", "--no-input", "install", *packages]
    if subprocess.run(command, stdin=subprocess.DEVNULL).returncode != 0:
        raise BuildError(
            f"pip could not install the pinned packages into {folder.name}: the messages above "
            "say why; without a network, use a Python that holds them: `make PYTHON=...`"
        )


def _add_repository(folder: Path) -> None:
    """Lets the environment's Python import the package from the repository."""
    for packages in folder.glob("lib/python3*/site-packages"):
        (packages / "thunderkittens-repository.pth").write_text(f"{ROOT}\n")


def _add_nvcc(folder: Path) -> None:
    """Installs nvcc from Python packages where PATH has none that can be used."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or settings.cuda_mode() == "0":
        return
    python = str(folder / "bin" / "python")
    command = [python, "-m", "build_tools", "missing-nvcc"]
    done = subprocess.run(command, cwd=ROOT, env=variables(), capture_output=True, text=True)
    if done.stdout.strip():
        _pip(folder, [done.stdout.strip()])


def missing_nvcc() -> str:
    """Returns what to install in this interpreter to have an nvcc, or "" where there is one."""
    torch = toolchain.find_torch()
    if torch.cuda is None or toolchain.find_cuda(int(torch.cuda.split(".")[0]))[0]:
        return ""
    return toolchain.nvcc_requirement() or ""


def has_driver() -> bool:
    """Returns whether the machine has a driver of NVIDIA's."""
    return Path("/proc/driver/nvidia/version").exists() or bool(shutil.which("nvidia-smi"))
