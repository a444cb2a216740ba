"""`make wheel` and its check."""

import subprocess

from build_tools import wheel
from build_tools.settings import ROOT


def test_pip_does_not_see_this_tree(monkeypatch):
    """What a build leaves in its root would be the package, installed already."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    seen = []

    def run(command, *, cwd, env):
        seen.append(env.get("PYTHONPATH"))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    wheel._pip("install", "--no-index", "thunderkittens.whl")
    assert seen == [None]
