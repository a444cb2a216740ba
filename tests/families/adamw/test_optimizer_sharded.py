"""AdamW of DTensors: two processes give what one does, on the shards they have."""

import subprocess
import sys

import pytest
import torch

from build_tools.settings import ROOT


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed")
def test_two_processes(tmp_path):
    command = [sys.executable, "-m", "tests.families.adamw.sharded_steps"]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "meeting")],
            cwd=ROOT,  # where the tests are; the package may be installed elsewhere
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [p.communicate(timeout=120)[0] for p in processes]
    finally:
        for p in processes:
            p.kill()
    for p, text in zip(processes, said, strict=True):
        assert p.returncode == 0, text
        assert "all steps agree" in text, text
