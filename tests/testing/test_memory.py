"""The guards are tried: each kind of stray access must be seen."""

import pytest
import torch

import thunderkittens
from thunderkittens import _loader
from thunderkittens.testing import Poisoned, check_memory, memory

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int32]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 1])
def test_values_and_strides_survive(dtype, offset):
    values = torch.randn(4, 6).to(dtype).t()[::2]
    with Poisoned() as guards:
        guarded = guards.guard(values, offset)
        assert torch.equal(guarded, values)
        assert guarded.stride() == values.stride()


def test_expanded_and_empty_tensors():
    with Poisoned() as guards:
        assert guards.guard(torch.randn(1, 4).expand(3, 4)).stride() == (0, 1)
        assert guards.guard(torch.randn(0, 4)).shape == (0, 4)
        assert guards.guard(torch.randn(())).dim() == 0


@pytest.mark.parametrize("place", [-1, 0, 5, 6])
def test_a_write_is_seen(place):
    """Before, inside, in a gap of, and after the tensor."""
    with pytest.raises(AssertionError, match="of it or its guards were changed"), Poisoned() as g:
        x = g.guard(torch.randn(2, 3).repeat(1, 2)[:, :3])
        flat = x.as_strided((x.untyped_storage().nbytes() // 4,), (1,), 0)
        flat[x.storage_offset() + place] = 7.0


def test_a_read_outside_is_seen():
    def leaky(x):
        return (torch.as_strided(x, (x.numel() + 1,), (1,), x.storage_offset()).sum(),)

    with pytest.raises(AssertionError, match="result 0 depends on memory outside the tensors"):
        check_memory(leaky, torch.randn(5))
    check_memory(lambda x: (x.sum(),), torch.randn(5))


def test_an_unwritten_output_is_seen():
    with memory.poisoned_outputs():
        assert torch.empty(5).isnan().all()
        assert torch.ops.thunderkittens.layer_norm(torch.ones(2, 4)).isfinite().all()
    assert not torch.are_deterministic_algorithms_enabled()


def test_bits_equal():
    nan = torch.tensor([float("nan"), -0.0])
    assert memory.bits_equal(nan, nan.clone())
    assert not memory.bits_equal(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not memory.bits_equal(torch.zeros(2), torch.zeros(2, dtype=torch.int32))
    assert memory.bits_equal(None, None)
    assert not memory.bits_equal(None, nan)


@pytest.mark.skipif(not _loader.SIMULATOR.is_file(), reason="the simulator is not built")
def test_the_simulator_reports_a_stray_access():
    """With the kernel's line, while the tensor is guarded and no longer."""
    with thunderkittens.backend("simulator"):
        with Poisoned() as guards:
            x = guards.guard(torch.randn(2, 8))
            wider = x.as_strided((3, 8), (8, 1), x.storage_offset())
            with pytest.raises(RuntimeError, match="past the end of a buffer of 64 bytes") as error:
                thunderkittens.layer_norm(wider)
            assert ".cuh:" in str(error.value)
        thunderkittens.layer_norm(wider)
