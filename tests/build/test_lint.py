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


def test_clang_format():
    problems = complaints("clang-format", lint.cxx_command())
    assert not problems, f"{problems}\n`make format` repairs them"
