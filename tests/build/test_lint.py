"""The code's form: what `make lint` checks."""

import shutil
import subprocess
from pathlib import Path

import pytest

from build_tools import lint
from build_tools.settings import ROOT, BuildError

AUTHOR = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")


def complaints(tool: str, command: list[str]) -> str:
    path = lint.find(tool)
    if path is None:
        pytest.skip(f"{tool} is not installed (requirements/lint.txt)")
    done = subprocess.run([path, *command], cwd=ROOT, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize("command", lint.python_commands(), ids=lambda command: command[0])
def test_ruff(command):
    problems = complaints("ruff", command)
    assert not problems, f"{problems}\n`make format` repairs what can be repaired"


def test_every_pattern_finds_files():
    assert not [pattern for pattern in lint.CXX_PATTERNS if not any(ROOT.glob(pattern))]


def test_every_source_is_formatted():
    suffixes = {".h", ".hpp", ".cuh", ".cu", ".cpp"}
    trees = {pattern.partition("/")[0] for pattern in lint.CXX_PATTERNS}
    sources = {
        str(path.relative_to(ROOT))
        for tree in trees
        for path in (ROOT / tree).rglob("*")
        if path.suffix in suffixes
    }
    assert not sources - {*lint.cxx_command()}


def test_clang_format():
    problems = complaints("clang-format", lint.cxx_command())
    assert not problems, f"{problems}\n`make format` repairs them"


def test_types():
    if lint.why_untyped():
        pytest.skip(lint.why_untyped())
    problems = complaints("mypy", lint.types_command())
    assert not problems, problems


def test_without_torch_types_are_skipped_aloud(monkeypatch, capsys):
    monkeypatch.setattr(lint.importlib.util, "find_spec", lambda name: None)
    asked = []

    class Done:
        returncode = 0

    monkeypatch.setattr(
        lint.subprocess, "run", lambda command, cwd: asked.append(command[0]) or Done
    )
    monkeypatch.setattr(lint, "find", lambda tool: tool)
    monkeypatch.setattr(lint, "long_subjects", list)
    lint.check()
    assert "mypy" not in asked and "ruff" in asked
    assert "mypy: skipped: torch, whose types are needed, is not" in capsys.readouterr().out


@pytest.fixture
def repository(tmp_path) -> Path:
    """One with a commit whose subject is too long, between others."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    folder = tmp_path / "repository"
    folder.mkdir()
    run(folder, "init", "-q")
    for length in (lint.SUBJECT_LENGTH, lint.SUBJECT_LENGTH + 1, 5):
        message = "x" * length + "\n\n" + "y" * 99
        run(folder, *AUTHOR, "commit", "-q", "--allow-empty", "-m", message)
    return folder


def run(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def test_long_subjects_are_found(repository):
    (found,) = lint.long_subjects(repository, "2020-01-01")
    assert found.endswith(" " + "x" * (lint.SUBJECT_LENGTH + 1))


def test_earlier_subjects_stay_as_they_are(repository, monkeypatch):
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2001-01-01T00:00:00Z")
    run(repository, *AUTHOR, "commit", "-q", "--amend", "--allow-empty", "-m", "x" * 99)
    assert not lint.long_subjects(repository, "2020-01-01")
    assert lint.long_subjects(repository, "2000-01-01")


def test_subjects_of_what_has_no_such_history_are_well(repository, tmp_path):
    run(tmp_path, "clone", "-q", "--depth=1", repository.as_uri(), "shallow")
    assert not lint.long_subjects(tmp_path / "shallow", "2020-01-01")
    (repository / "archive").mkdir()  # within a repository that is not its own
    assert not lint.long_subjects(repository / "archive", "2020-01-01")


def test_a_long_subject_fails(monkeypatch, capsys):
    monkeypatch.setattr(lint, "find", lambda tool: "true")
    monkeypatch.setattr(lint, "long_subjects", lambda: ["abc1234 said at length"])
    with pytest.raises(BuildError, match="git complained"):
        lint.check()
    assert "at most 72 characters: abc1234 said at length" in capsys.readouterr().out
    lint.check(repair=True)
