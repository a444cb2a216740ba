"""DTensors through our ops: two processes give what one does, on the shards they have.

What is checked is in tests/tools/sharded.py, which each process runs.
"""

import os
import subprocess
import sys

import pytest
import torch

from build_tools.settings import ROOT
from thunderkittens._loader import PACKAGE

IMPORTED_FIRST = """
import sys
from torch.distributed.tensor import DTensor
import thunderkittens
import torch
op = torch.ops.thunderkittens.layer_norm.default
assert op in DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
"""


def _in_two_processes(device: str, folder) -> None:
    command = [sys.executable, "-m", "tests.tools.sharded", device]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(folder / "meeting")],
            cwd=ROOT,  # where the tests are; the package may be installed elsewhere
            env=os.environ | {"THUNDERKITTENS_STRICT": "0"},  # float32 attention is torch's
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [p.communicate(timeout=300)[0] for p in processes]
    finally:
        for p in processes:
            p.kill()
    for p, text in zip(processes, said, strict=True):
        assert p.returncode == 0 and "all shards agree" in text, text


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed")
def test_two_processes_on_the_cpu(tmp_path):
    _in_two_processes("cpu", tmp_path)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus(tmp_path):
    _in_two_processes("cuda", tmp_path)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed")
def test_dtensor_may_be_imported_first():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED_FIRST], cwd=PACKAGE.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
