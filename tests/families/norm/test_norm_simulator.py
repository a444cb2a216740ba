"""layer_norm's kernels, lane by lane on the CPU: the list of test_norm.py in small."""

import threading

import pytest
import torch

import thunderkittens
from tests.families.norm import cases
from tests.families.norm.cases import BF16, FP32, Case
from thunderkittens import _C, _backend, _loader
from thunderkittens.testing import check_memory, memory

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)

ALL = [
    *cases.widths(),
    *(Case(cases.WIDE, (2,), d, d, d) for d in (FP32, BF16)),
    Case(3072, (2,), BF16, FP32, FP32),
    *cases.options(24),
    *cases.options(9)[::3],
    *cases.layouts(16),
    *cases.layouts(9)[::2],
    *cases.layouts(264)[::2],
    *cases.regimes(40),
    *cases.regimes(1600, (9,)),
    *cases.forms(9),
    *cases.regimes(264),
    # More rows than the backward takes in one launch.
    *cases.widths((1, 7, 9, 129, 768, 1025), leading=(9,)),
    *cases.options(24, (9,)),
    *cases.options(264, (9,))[::3],
    *cases.layouts(16, (2, 5)),
    *cases.layouts(9, (2, 5))[::2],
    *cases.regimes(40, (9,)),
    *cases.regimes(264, (9,)),
    Case(64, (150,), BF16, BF16, BF16),  # more rows than the grid has places
    Case(cases.WIDE, (66,), BF16, BF16, BF16),  # and than a wide row's sums have parts
    Case(5, (), FP32),
]
SEVERAL_ROWS = [
    *cases.widths((*cases.WIDTHS, cases.WIDE), leading=(9,)),
    *cases.widths((7, 129, 1024, 4100), leading=(8,)),
]
POLICIES = (
    {},
    {"policy": "lazy"},
    {"policy": "random", "seed": 1},
    {"policy": "random", "seed": 2},
)


@pytest.mark.parametrize("width", [64, 256, 264, 768, 2051])
@pytest.mark.parametrize("op", ["layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm"])
def test_bits_of_a_row(op, width):
    """y's are the same in calls of how many rows soever; dx's of short rows in few, and in many."""
    row, residual, dy = torch.randn(3, width)
    weight = torch.randn(width)
    found = {}
    for rows in (1, 2, 8, 9, 40):
        x = torch.cat([torch.randn(rows - 1, width), row[None]]).requires_grad_()
        inputs = (x, residual.expand(rows, width)) if op.startswith("add") else (x,)
        with thunderkittens.backend("simulator"):
            result = getattr(thunderkittens, op)(*inputs, weight)
            y = result[0] if op.startswith("add") else result
            (dx,) = torch.autograd.grad(y, x, dy.expand(rows, width))
        found[rows] = y.detach()[-1], dx[-1]
    for rows, (y, dx) in found.items():
        assert memory.bits_equal(y, found[1][0])
        assert memory.bits_equal(dx, found[9 if width <= 256 and rows > 8 else 1][1]), rows


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def launches() -> int:
    return sum(_C.launch_counts().values())


def options(race: bool = False) -> str:
    """This thread's options of the simulator, in race mode or not."""
    return _backend._options(_backend._simulator(race))


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours."""
    inputs = cases.make(case)
    before = launches()
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: cases.run(*t, case.eps), *inputs)
    assert launches() == before + 4  # two runs, forward and backward
    cases.check(case, inputs, results)


@pytest.mark.parametrize(
    "check", (cases.check_large_mean, cases.check_tiny_eps, cases.check_not_finite)
)
def test_numbers_at_the_edge(check):
    with thunderkittens.backend("simulator"):
        check("cpu")


@pytest.mark.parametrize("case", SEVERAL_ROWS, ids=str)
def test_policies_agree(case):
    """The order of threads, blocks and asynchronous work changes no bit; nor does a repetition."""
    inputs = cases.make(case)
    with thunderkittens.backend("simulator", threads=1):
        want = cases.run(*inputs)
    for options in POLICIES:
        with thunderkittens.backend("simulator", **options):
            for got, first in zip(cases.run(*inputs), want, strict=True):
                assert memory.bits_equal(got, first), options


@pytest.mark.skipif(not _loader.SIMULATOR_RACE.is_file(), reason="race mode is not built")
@pytest.mark.parametrize("case", SEVERAL_ROWS, ids=str)
def test_no_races(case):
    """Nothing is left to chance in shared memory, and the numbers are those without race mode."""
    inputs = cases.make(case)
    with thunderkittens.backend("simulator"):
        want = cases.run(*inputs)
    with thunderkittens.backend("simulator", policy="random", seed=3, race=True):
        for got, first in zip(cases.run(*inputs), want, strict=True):
            assert memory.bits_equal(got, first)


def test_race_mode_needs_kernels_that_it_can_look_into():
    library = _backend._simulator(False)
    before = options()
    _backend._configure(library, "eager,race")
    try:
        with (
            thunderkittens.backend("simulator"),
            pytest.raises(RuntimeError, match="race mode needs kernels compiled with -fsanitize"),
        ):
            thunderkittens.layer_norm(torch.randn(2, 8))
    finally:
        _backend._configure(library, before)


def test_no_statistics_without_gradients():
    """Without a gradient the op keeps no statistics; its result is the same."""
    x, weight, bias, _ = cases.make(Case(129))
    with thunderkittens.backend("simulator"):
        y = thunderkittens.layer_norm(x, weight, bias)
        again, mean, rstd = torch.ops.thunderkittens.layer_norm_forward(x, weight, bias, 1e-5)
    assert torch.equal(y, again)
    assert mean.shape == rstd.shape == (3,)


@pytest.mark.parametrize(
    "needs", [(True, False, False), (False, True, False), (False, False, True)]
)
def test_gradients_that_are_wanted(needs):
    inputs = cases.make(Case(129))
    with thunderkittens.backend("simulator"):
        full = cases.run(*inputs)[1:]
        leaves = [t.clone().requires_grad_(n) for t, n in zip(inputs[:3], needs, strict=True)]
        thunderkittens.layer_norm(*leaves).backward(inputs[3])
    for leaf, want, need in zip(leaves, full, needs, strict=True):
        assert (leaf.grad is not None) == need
        assert not need or torch.equal(leaf.grad, want)


def test_backward_outside_of_the_context():
    """The graph remembers who computed the forward."""
    x, weight, bias, dy = cases.make(Case(40))
    x.requires_grad_()
    with thunderkittens.backend("simulator"):
        y = thunderkittens.layer_norm(x, weight, bias)
    before = _C.launch_counts()["layer_norm_backward"]
    y.backward(dy)
    assert _C.launch_counts()["layer_norm_backward"] == before + 1


@pytest.mark.parametrize("shape", [(0, 8), (3, 0)], ids=str)
def test_empty_launches_nothing(shape):
    x = torch.randn(shape, requires_grad=True)
    before = launches()
    with thunderkittens.backend("simulator"):
        thunderkittens.layer_norm(x).sum().backward()
    assert x.grad.shape == shape
    assert launches() == before


def test_explain():
    x = torch.randn(4, 6, 264)
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("layer_norm", x)
        copied = thunderkittens.explain("layer_norm", x.transpose(0, 1))
        narrow = thunderkittens.explain("layer_norm", x[..., :256].transpose(0, 1))
    assert (found.backend, found.notes) == ("simulator", ())
    assert narrow.notes == ()
    assert "x is copied first: its strides [264, 1584, 1]" in str(copied)


@pytest.mark.skipif(not _loader.SIMULATOR_RACE.is_file(), reason="race mode is not built")
def test_race_mode_has_options_of_its_own():
    start = options(), options(race=True)
    with thunderkittens.backend("simulator", race=True, policy="lazy"):
        assert options(race=True).startswith("lazy,race,")
        with thunderkittens.backend("simulator", race=True):
            assert options(race=True).startswith("lazy,race,")
        with thunderkittens.backend("simulator"):
            assert options() == start[0]
    assert (options(), options(race=True)) == start


def test_options_are_restored():
    with thunderkittens.backend("simulator", policy="lazy"):
        with thunderkittens.backend("simulator", policy="random", seed=7):
            pass
        assert options().startswith("lazy,")


def test_files_stay_under_another_policy(tmp_path):
    """What is asked for outside is written inside too, and neither outlives its context."""
    before = options()
    trace, facts = tmp_path / "t.json", tmp_path / "f.json"
    with thunderkittens.backend("simulator", trace=trace, block=2, facts=facts):
        own = options()
        assert own == f"eager,facts={facts},trace={trace},block=2,{own.split(',')[-1]}"
        with thunderkittens.backend("simulator", policy="random", seed=3, threads=2):
            changed = own.replace("eager", "random:3,threads=2")
            assert options() == changed
        with thunderkittens.backend("simulator", trace=facts):
            assert options() == own.replace(str(trace), str(facts)).replace(",block=2", "")
        assert options() == own
    assert options() == before


def test_options_belong_to_the_thread():
    """Whichever context is left last, no thread is left with another's options."""
    seen, inside, first_left = [], threading.Event(), threading.Event()

    def other():
        with thunderkittens.backend("simulator"):
            before = options()
        with thunderkittens.backend("simulator", policy="random", seed=3, threads=1):
            inside.set()
            assert first_left.wait(10)
        seen.append((before, options()))

    thread = threading.Thread(target=other)
    with thunderkittens.backend("simulator"):
        start = options()
        with thunderkittens.backend("simulator", policy="lazy"):
            thread.start()
            assert inside.wait(10)
            assert options().startswith("lazy,")
    first_left.set()
    thread.join()
    assert options() == start
    assert seen == [(start, start)]


def test_cuda_tensors_are_refused():
    message = r"layer_norm: tensors must be on the cpu under backend\('simulator'\), got cuda"
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    with thunderkittens.backend("simulator"), pytest.raises(ValueError, match=message):
        thunderkittens.layer_norm(torch.ones(2, 8, device="cuda"))
