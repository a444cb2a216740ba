"""Training with torch.distributed: DDP, FSDP2, tensor, sequence and context parallelism.

What is compared with one process is in tests/tools/parallel_training.py, which each process runs.
"""

import pytest
import torch

from tests.tools.ranks import run_ranks

TRAINING = "tests.tools.parallel_training"


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed")
def test_two_processes_on_the_cpu():
    run_ranks(TRAINING, 2, "cpu")


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed")
def test_fsdp_and_tensor_parallelism_of_four_processes():
    run_ranks(TRAINING, 4, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus():
    run_ranks(TRAINING, 2, "cuda")
