"""The interpreter that a build is for: that of pip, uv or whoever asked, not a hidden one's."""

import os
from pathlib import Path

import pytest

from build_tools import backend, toolchain


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Says by which command and variables a build is asked for; returns those that may be meant."""
    folder = tmp_path / "project" / "part"
    folder.mkdir(parents=True)
    monkeypatch.setattr(backend, "_parent_folder", lambda: folder)

    def ask(command: str, **variables: str) -> list[str]:
        monkeypatch.setattr(backend, "_parent", lambda: (command.split(), variables))
        return [name for name, _ in backend._interpreters()][1:]

    return ask


def environment(folder: Path) -> str:
    """A virtual environment, as far as a search for one goes."""
    python = folder / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    python.with_name("python").symlink_to("python3")
    return str(python)


def test_the_program_itself(asked, tmp_path):
    python = environment(tmp_path / "own")
    assert asked(f"{python} -m pip install .")[0] == python
    relative = os.path.join("..", "..", "own", "bin", "python3")
    assert os.path.samefile(asked(f"{relative} -m pip install .")[0], python)


@pytest.mark.parametrize("option", ["--python {}", "--python={}", "-p {}"])
def test_the_one_that_is_named(asked, tmp_path, option):
    python = environment(tmp_path / "named")
    for name in (python, tmp_path / "named"):
        found = asked(f"uv pip install {option.format(name)} .")
        assert os.path.samefile(found[0], python)


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_active_environment(asked, tmp_path, variable):
    python = environment(tmp_path / "active")
    environment(tmp_path / "project" / ".venv")
    assert asked("uv pip install .", **{variable: str(tmp_path / "active")})[0] == python


def test_the_environment_of_the_project(asked, tmp_path):
    python = environment(tmp_path / "project" / ".venv")
    assert asked("uv pip install .", PATH="/nowhere")[0] == python


def test_messages_name_it(asked, tmp_path, monkeypatch):
    """And not our own, which may be the build's and is removed after it."""
    python = environment(tmp_path / "own")
    asked(f"{python} -m build .", PATH="/nowhere")
    answers = {python: (False, python, [])}
    monkeypatch.setattr(backend.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(backend, "_probe", lambda name, _: answers.get(name, (False, name, [])))
    monkeypatch.setattr(toolchain, "interpreter", "before")
    backend._show_installed_packages()
    assert toolchain.interpreter == python
