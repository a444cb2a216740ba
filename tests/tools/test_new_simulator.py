"""`make new`: a scratch copy of the tree gets an op, which builds and passes its own tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import configs
from build_tools import new, settings
from build_tools.settings import ROOT, BuildError
from thunderkittens import _loader

FAMILY, OP = "swishes", "swish_unit"  # not alike, and of two words
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache")
MADE = {ROOT: ("build", "dist", "runs"), settings.PACKAGE: ("lib", "include")}  # by builds
EDITED = {"configs.py", "thunderkittens/__init__.py", "README.md"}
OF_ALL_OPS = (
    "test_structure",
    "test_docs",
    "benchmarks/test_harness",
    "fuzz/test_fuzz",
    "mutation/test_operators",
    "ops/test_arguments",
    "ops/test_backward_in_autocast",
    "ops/test_recorded",
    "tools/test_budgets_simulator",
    "tools/test_simulate_simulator",
)
# With this build's objects, but not in the place of its libraries; of the simulator, one family.
BUILD = f"""
from build_tools import compile, ops, settings, simulator
ops.build(name="new")
toolkit = simulator.headers()
kernels = settings.ROOT.glob("csrc/kernels/{FAMILY}/*.cu")
jobs = [*simulator.jobs(), *(simulator.fast_kernel_job(toolkit, path) for path in kernels)]
objects = compile.run(jobs, "Compiling for the simulator")
job = simulator.library_job(objects, settings.PACKAGE, "new/_simulator")
(linked,) = compile.run([job], "Linking")
compile.install(linked.output, settings.PACKAGE / "lib" / simulator.LIBRARY)
"""


def contents(tree: Path) -> dict[str, bytes]:
    return {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in tree.rglob("*")
        if path.is_file() and ".ruff_cache" not in path.parts
    }


def run(tree: Path, *words: str, **variables: str) -> str:
    """A Python command in the copy, with this build's objects and without nvcc."""
    given = {"THUNDERKITTENS_BUILD_DIR": str(settings.build_dir()), "THUNDERKITTENS_CUDA": "0"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env=kept | given | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"} | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    tree = tmp_path_factory.mktemp("new") / "tree"

    def left_out(folder: str, names: list[str]) -> set[str]:
        made = [n for n in names if n in MADE.get(Path(folder), ())]
        return {*LEFT_OUT(folder, names), *made}

    shutil.copytree(ROOT, tree, ignore=left_out)
    return tree


@pytest.fixture(scope="module")
def changed(copy) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The copy's files before and after `make new`."""
    before = contents(copy)
    run(copy, "-m", "build_tools", "new", f"{FAMILY}/{OP}")
    return before, contents(copy)


def test_three_files_change_by_one_entry(changed):
    before, after = changed
    assert before.keys() <= after.keys()
    assert {name for name in before if before[name] != after[name]} == EDITED
    for name in EDITED:
        old, lines = (text[name].decode().splitlines() for text in (before, after))
        added = [line for line in lines if line not in old]
        assert all(OP in line for line in added) and len(lines) - len(old) == len(added)
        assert len(added) == (2 if name.endswith("__init__.py") else 1)


def test_names_are_filled_in(changed):
    before, after = changed
    for name in after.keys() - before.keys():
        text = after[name].decode()
        assert "@op@" not in text and "@family@" not in text and "@Op@" not in text, name
        assert FAMILY in name or OP in name, name


@pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)
def test_it_builds_and_passes(copy, changed):
    """Its own tests, and of the tests of all ops those that are about it."""
    run(copy, "-c", BUILD)
    paths = [f"tests/families/{FAMILY}", *(f"tests/{path}.py" for path in OF_ALL_OPS)]
    chosen = f"{FAMILY} or {OP} or test_structure or covered or mutated or of_the_list"
    said = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths, "-k", chosen)
    assert " passed" in said and "failed" not in said


TAKEN = configs.KERNELS[0].name


@pytest.mark.parametrize(
    "words", ["swish", "a/B", "a/b-c", "1/a", f"{TAKEN}/x", f"x/{TAKEN}", "class/x", "/", "a/b/c"]
)
def test_names_that_no_op_can_have(words, tmp_path):
    with pytest.raises(BuildError, match="^new: "):
        new.write(words, tmp_path)
    assert not list(tmp_path.iterdir())
