"""Makes the wheel for the torch and the CUDA at hand, and tries it as those who install it will.

One wheel serves every Python, torch of one minor version, and one CUDA or none: its version says
which (`build_info.version`), and its metadata requires that torch. Its platform is the one it was
built on, plain `linux_x86_64`: it needs that C library or a newer one, and it claims no manylinux,
whose rules do not allow it to leave torch's libraries and CUDA's to other packages.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from build_tools import ops, settings, toolchain
from build_tools.settings import PACKAGE, ROOT, BuildError

FOLDER = ROOT / "dist"
CHECK = "--check"
NOT_COPIED = (PACKAGE.name, "build", "dist", "runs")  # of what lies in the tree's root


def run(arguments: Sequence[str]) -> int:
    """Makes the wheel in dist/; with --check, installs it apart and runs tier 2 of the tests.

    Args:
        arguments: After --check, further ones are for pytest.

    Returns:
        The exit status.
    """
    if arguments and arguments[0] != CHECK:
        raise BuildError(f"wheel: unknown argument {arguments[0]!r}; {CHECK} is known")
    wheel = build()
    return check(wheel, arguments[1:]) if arguments else 0


def build() -> Path:
    """Builds the libraries in place, which shows the progress, then the wheel of them."""
    ops.build()
    scratch = settings.build_dir() / "wheel" / "made"
    shutil.rmtree(scratch, ignore_errors=True)
    _pip("wheel", "--no-build-isolation", "--no-deps", "-w", scratch, ROOT)
    (made,) = scratch.glob("*.whl")
    FOLDER.mkdir(exist_ok=True)
    wheel = made.replace(FOLDER / made.name)
    print(f"{wheel.relative_to(ROOT)}, {wheel.stat().st_size / 2**20:.1f} MiB", flush=True)
    return wheel


def check(wheel: Path, arguments: Sequence[str] = ()) -> int:
    """Installs a wheel in a fresh environment that sees torch, and runs tier 2 of the tests there.

    The tests run in a copy of the tree that has no package, so that they import the installed one.

    Returns:
        The exit status of pytest.
    """
    folder = settings.build_dir() / "wheel" / "check"
    shutil.rmtree(folder, ignore_errors=True)
    python = make_environment(folder / "environment")
    _pip("install", "--no-index", wheel, python=python)
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=_not_copied)
    print(f"Running tier 2 with {wheel.name}, installed in {folder}", flush=True)
    environment = _variables()
    # Tests that compile find there what this tree has made of the same sources.
    environment["THUNDERKITTENS_BUILD_DIR"] = str(settings.build_dir())
    where = [python, "-c", "import thunderkittens; print(thunderkittens.__file__)"]
    subprocess.run(where, cwd=tree, env=environment, check=True)
    command = [python, "-m", "pytest", "-q", "--tier=2", *arguments]
    return subprocess.run(command, cwd=tree, env=environment).returncode


def make_environment(folder: Path) -> Path:
    """Makes a virtual environment that sees torch and the packages beside it; returns its Python.

    The file that names their folder brings none of the .pth files in it, so this tree is not seen.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    (site / "seen.pth").write_text(f"{toolchain.find_torch().root.parent}\n")
    return folder / "bin" / "python"


def _variables() -> dict[str, str]:
    """The environment without PYTHONPATH, by which this tree would be found.

    pip, too: it would take what a build has left in the tree's root for the package, installed.
    """
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def _not_copied(folder: str, names: list[str]) -> set[str]:
    made = set(shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")(folder, names))
    return made | ({*names} & {*NOT_COPIED} if Path(folder) == ROOT else set())


def _pip(command: str, *words: object, python: str | Path = sys.executable) -> None:
    full = [python, "-m", "pip", "--disable-pip-version-check", "-q", command, *words]
    done = subprocess.run([str(word) for word in full], cwd="/", env=_variables())
    if done.returncode != 0:
        raise BuildError(f"pip could not {command} it: the messages above say why")
