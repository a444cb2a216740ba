"""`make test` leaves out what has passed with the same files, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from build_tools import results
from build_tools.settings import ROOT
from tests.tools import cached_results

CONFTEST = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests import conftest
from tests.tools import cached_results
cached_results.ROOT = Path(__file__).parent
conftest.TESTS = cached_results.ROOT / "tests"
from tests.conftest import *
"""
FIRST = """
import pytest
import helper
@pytest.mark.parametrize("x", [1, 2])
def test_one(x):
    assert x < helper.LIMIT
def test_two():
    pytest.skip("not here")
"""
SECOND = """
import pytest
import helper
@pytest.fixture
def fixture():
    yield
    assert helper.LIMIT == 3
def test_three(fixture):
    pass
"""


@pytest.fixture
def tree(tmp_path, monkeypatch) -> Path:
    """A tree of two files of tests and a module, in which no result is known."""
    tree = tmp_path / "tree"
    (tree / "tests").mkdir(parents=True)
    (tree / "conftest.py").write_text(CONFTEST)
    (tree / "pytest.ini").write_text("[pytest]\nmarkers =\n  tier(n): x\n  gpu: x\n")
    (tree / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    (tree / "tests/helper.py").write_text("LIMIT = 2\n")
    (tree / "tests/test_first.py").write_text(FIRST)
    (tree / "tests/test_second.py").write_text(SECOND)
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("THUNDERKITTENS_BUILD_DIR", str(tmp_path / "build"))
    for variable in ("CI", results.SINCE, "PYTEST_XDIST_WORKER_COUNT", "THUNDERKITTENS_CACHE_GIB"):
        monkeypatch.delenv(variable, raising=False)
    return tree


def said(tree: Path, *options: str) -> tuple[str, int]:
    """Runs the tests; returns pytest's counts, and how many tests it said it had left out."""
    command = [sys.executable, "-m", "pytest", "-q", "--cached-results", *options]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, env=os.environ)
    assert not done.stderr, done.stderr
    lines = done.stdout.splitlines()
    left_out = [line for line in lines if "tests not run: they passed" in line]
    assert done.returncode == ("failed" in lines[-1]), done.stdout
    counts = lines[-1].rpartition(" in ")[0]
    return counts, int(left_out[0].split()[0]) if left_out else 0


def test_what_passed_is_left_out_until_a_file_changes(tree):
    counts, left_out = said(tree)
    assert counts == "1 failed, 2 passed, 1 skipped, 1 error" and left_out == 0
    counts, left_out = said(tree)  # what failed or was skipped is tried again
    assert counts.startswith("1 failed, 1 passed, 1 skipped") and left_out == 1
    (tree / "tests/helper.py").write_text("LIMIT = 3\n")
    assert said(tree) == ("3 passed, 1 skipped", 0)
    (tree / "tests/test_second.py").write_text(SECOND + "\n")  # this file's own test, no other
    counts, left_out = said(tree)
    assert counts.startswith("1 passed, 1 skipped") and left_out == 2
    (tree / "untracked.txt").write_text("")
    assert said(tree) == ("3 passed, 1 skipped", 0)


def test_of_several_processes(tree):
    (tree / "tests/helper.py").write_text("LIMIT = 3\n")
    assert said(tree, "-n", "2") == ("3 passed, 1 skipped", 0)
    assert said(tree, "-n", "2")[1] == 3
    assert said(tree, "-n", "2", "-k", "not two")[1] == 3  # no test is left: that is no failure


def test_the_environment_counts(tree, monkeypatch):
    (tree / "tests/helper.py").write_text("LIMIT = 3\n")
    assert said(tree)[1] == 0
    assert said(tree)[1] == 3
    assert said(tree, "--no-cached-results") == ("3 passed, 1 skipped", 0)
    monkeypatch.setenv("THUNDERKITTENS_CUDA", "0")
    assert said(tree)[1] == 0
    monkeypatch.setenv("CI", "true")
    assert said(tree) == ("3 passed, 1 skipped", 0)
    monkeypatch.delenv("CI")
    subprocess.run(["rm", "-r", ".git"], cwd=tree, check=True)
    assert said(tree) == ("3 passed, 1 skipped", 0)


def test_what_is_edited_before_it_is_read_is_not_what_was_tested(tree, monkeypatch):
    """The first run tests other contents of the second file than those that it began with."""
    second = tree / "tests/test_second.py"
    second.write_text("def test_three():\n    assert False\n")
    edit = f"import os\nif 'EDIT' in os.environ:\n    open({str(second)!r}, 'w').write({SECOND!r})\n"
    (tree / "tests/helper.py").write_text(f"LIMIT = 3\n{edit}")
    monkeypatch.setenv("EDIT", "1")
    assert said(tree) == ("3 passed, 1 skipped", 0)
    monkeypatch.delenv("EDIT")
    second.write_text("def test_three():\n    assert False\n")
    counts, left_out = said(tree)
    assert counts.startswith("1 failed, 1 skipped") and left_out == 2


def test_no_file_of_tests_is_imported():
    """Its results would not count as the other's."""
    names = {f"tests/{path.relative_to(ROOT / 'tests')}" for path in (ROOT / "tests").rglob("*.py")}
    found = {name for name in names if cached_results._has_tests(Path(name))}
    modules = {name.removesuffix(".py").replace("/", ".") for name in found}
    assert len(modules) > 100
    for name in names:
        text = (ROOT / name).read_text()
        assert not [m for m in modules if f"from {m} " in text or f"import {m}\n" in text], name
