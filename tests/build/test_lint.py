"""The code's form: what `make lint` checks."""

import subprocess

import pytest

from build_tools import lint
from build_tools.settings import ROOT


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
    lint.check()
    assert "mypy" not in asked and "ruff" in asked
    assert "mypy: skipped: torch, whose types are needed, is not" in capsys.readouterr().out
