"""AdamW of DTensors: two processes give what one does, on the shards they have."""

import pytest
import torch

from tests.tools.ranks import run_ranks

STEPS = "tests.families.adamw.sharded_steps"


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed")
def test_two_processes():
    run_ranks(STEPS, 2, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus():
    run_ranks(STEPS, 2, "cuda")
