"""DTensors through our ops: two processes give what one does, on the shards they have.

What is checked is in tests/tools/sharded.py, which each process runs.
"""

import subprocess
import sys

import pytest
import torch

from tests.tools.ranks import run_ranks
from thunderkittens._loader import PACKAGE

IMPORTED_FIRST = """
import sys
from torch.distributed.tensor import DTensor
import thunderkittens
import torch
op = torch.ops.thunderkittens.layer_norm.default
assert op in DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed")
def test_two_processes_on_the_cpu():
    run_ranks("tests.tools.sharded", 2, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus():
    run_ranks("tests.tools.sharded", 2, "cuda")


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed")
def test_dtensor_may_be_imported_first():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED_FIRST], cwd=PACKAGE.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
