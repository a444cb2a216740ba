"""Ring attention: ranks that share sequences compute what one process does.

What is checked is in ring_checks.py, which each process runs: in groups of 2, 3 and 4 of them.
"""

import pytest
import torch
import torch.distributed as dist

from tests.tools.ranks import run_ranks
from thunderkittens.distributed import ring_attention

CHECKS = "tests.families.attention.ring_checks"


@pytest.fixture
def alone():
    """A group of this process, which is not the default one of others."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available(), reason="torch has no torch.distributed")
def test_four_processes_on_the_cpu():
    run_ranks(CHECKS, 4, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus():
    run_ranks(CHECKS, 2, "cuda")


@pytest.mark.skipif(not dist.is_available(), reason="torch has no torch.distributed")
def test_compiled_code_breaks_its_graph(alone):
    def twice(q, k):
        return 2 * ring_attention(2 * q, k, k, causal=True)

    q, k = torch.randn(1, 4, 4, 8), torch.randn(1, 4, 2, 8)
    compiled = torch.compile(twice, backend="eager")
    torch.testing.assert_close(compiled(q, k), twice(q, k), rtol=0, atol=0)
