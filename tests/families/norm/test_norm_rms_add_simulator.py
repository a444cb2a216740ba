"""The kernels of rms_norm, add_layer_norm and add_rms_norm, lane by lane on the CPU."""

import dataclasses

import pytest
import torch

import thunderkittens
from tests.families.norm import rms_add_cases as cases
from tests.families.norm.rms_add_cases import ADDS, BF16, FP16, FP32, OPS, Case
from thunderkittens import _C, _loader
from thunderkittens.testing import check_memory, memory

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)

SMALL = [
    *cases.widths(cases.FEW, (FP32, BF16), p=0.4),
    *cases.widths((64, 100), (FP16,)),
    *(Case(op, 8200, (2,), BF16, BF16, BF16) for op in OPS),  # the backward in two readings
    *(Case(op, 2049, (2,), BF16, FP32, FP32) for op in ADDS),
]
ALL = [
    *SMALL,
    *(case for width in (24, 9, 264) for case in cases.options(width)),
    *(case for width in (16, 9, 264) for case in cases.layouts(width)),
    # More rows than the backward takes in one launch.
    *cases.widths((8, 65, 129, 257, 768), (FP32, BF16), (9,), p=0.4),
    *(case for width in (24, 9, 264) for case in cases.options(width, (9,))),
    *(case for width in (16, 9, 264) for case in cases.layouts(width, (2, 5))),
    *(Case(op, cases.WIDE, (2,), BF16, BF16, BF16, p=0.2 if op in ADDS else 0.0) for op in OPS),
    *(Case(op, 12296, (1,)) for op in OPS),  # in float, two rows at a time are too much
    *(Case(op, w, (600,), BF16, BF16, BF16) for op in OPS for w in (8, 64)),  # rounds of the grid
    *(Case(op, 300, (50,), BF16, BF16, BF16) for op in OPS),
    *(
        Case(op, w, (9,), BF16, d, BF16)
        for op in OPS
        for w in (264, 520, 1032, 4104)
        for d in (BF16, FP32, None)
    ),
    *(Case(op, 64, (4, 5), layout="heads", p=0.1 if op in ADDS else 0.0) for op in OPS),
]
SEVERAL_ROWS = [
    *(dataclasses.replace(case, leading=(9,)) for case in SMALL),
    *cases.widths((7, 129, 1024, 4100), (FP32, BF16), (8,), p=0.4),
]
POLICIES = ({"policy": "lazy"}, {"policy": "random", "seed": 1}, {"policy": "random", "seed": 2})


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def launches() -> int:
    return sum(_C.launch_counts().values())


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours."""
    inputs = cases.make(case)
    before = launches()
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: cases.run(case, *t), *inputs)
    assert launches() == before + 4  # two runs, forward and backward
    cases.check(case, inputs, results)


@pytest.mark.parametrize("case", SEVERAL_ROWS, ids=str)
def test_policies_agree(case):
    """The order of threads, blocks and asynchronous work changes no bit; nor does a repetition."""
    inputs = cases.make(case)
    with thunderkittens.backend("simulator", threads=1):
        want = cases.run(case, *inputs)
    for options in POLICIES:
        with thunderkittens.backend("simulator", **options):
            for got, first in zip(cases.run(case, *inputs), want, strict=True):
                assert got is first is None or memory.bits_equal(got, first), options


@pytest.mark.skipif(not _loader.SIMULATOR_RACE.is_file(), reason="race mode is not built")
@pytest.mark.parametrize("case", SEVERAL_ROWS, ids=str)
def test_no_races(case):
    """Nothing is left to chance in shared memory, and the numbers are those without race mode."""
    inputs = cases.make(case)
    with thunderkittens.backend("simulator"):
        want = cases.run(case, *inputs)
    with thunderkittens.backend("simulator", policy="random", seed=3, race=True):
        for got, first in zip(cases.run(case, *inputs), want, strict=True):
            assert got is first is None or memory.bits_equal(got, first)


@pytest.mark.parametrize("op", ADDS)
@pytest.mark.parametrize("width", [7, 64, 264, 300, 1040, 8200, 16392])
@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_mask_is_that_of_the_cpu(op, width, dtype):
    """Kernels of every kind, forward and backward, drop what ATen drops."""
    x, zeros = torch.ones(3, width, dtype=dtype), torch.zeros(3, width, dtype=dtype)
    seed = torch.tensor([-5])
    call = getattr(thunderkittens, op)
    _, want = call(x, zeros, dropout_p=0.3, seed=seed)
    x.requires_grad_()
    with thunderkittens.backend("simulator"):
        _, total = call(x, zeros, dropout_p=0.3, seed=seed)
    assert torch.equal(total, want)
    total.sum().backward()
    assert torch.equal(x.grad == 0, want == 0)


@pytest.mark.parametrize("op", OPS)
def test_empty_launches_nothing(op):
    for width, leading in ((8, (0,)), (0, (3,))):
        case = Case(op, width, leading)
        before = launches()
        with thunderkittens.backend("simulator"):
            cases.run(case, *cases.make(case))
        assert launches() == before


def test_explain():
    qkv = torch.randn(2, 5, 3 * 4, 64)
    q, wide = qkv[:, :, :4], torch.randn(2, 5, 12, 264)[:, :, :4]
    with thunderkittens.backend("simulator"):
        assert thunderkittens.explain("rms_norm", q).notes == ()
        assert "x is copied first" in str(thunderkittens.explain("rms_norm", wide))
        found = thunderkittens.explain("add_rms_norm", q, q)
    assert found.backend == "simulator"
    assert found.notes[0].startswith("residual is copied first")
