"""attention_backward's kernels, the one for Hopper and the generic one, lane by lane on the CPU."""

import dataclasses
import functools
import math
from collections.abc import Callable

import pytest
import torch

import thunderkittens
from tests.families.attention import cases, guarded, layouts
from tests.families.attention.backward_lists import ALL, OF_EACH_KIND, packed
from tests.families.attention.cases import BF16, FP16, FP32, Case
from tests.families.attention.forward_checks import launches
from tests.families.attention.simulator_lists import POLICIES, SPOILT_KEYS
from thunderkittens import _loader
from thunderkittens.testing import memory, tolerance

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)

ALL_NEEDED = [True] * 4


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(params=[None, "generic"], ids=["specialised", "generic"])
def simulator(request) -> Callable[..., thunderkittens.backend]:
    """The backend, of either kernel, with options."""
    return functools.partial(thunderkittens.backend, "simulator", kernel=request.param)


@dataclasses.dataclass
class Problem:
    """A case with its tensors, the forward's results and the incoming gradients."""

    case: Case
    tensors: list[torch.Tensor]
    o: torch.Tensor
    lse: torch.Tensor
    dout: torch.Tensor
    dlse: torch.Tensor | None

    @classmethod
    def make(cls, case: Case, with_lse: bool = True) -> "Problem":
        tensors = cases.make(case)
        return cls.of(case, tensors, *cases.incoming(case, "cpu", with_lse))

    @classmethod
    def of(cls, case: Case, tensors, dout, dlse=None) -> "Problem":
        """With tensors that are given."""
        with thunderkittens.backend("simulator"):
            o, lse = cases.forward(case, *tensors)
        return cls(case, tensors, o, lse, dout, dlse)

    def backward(self, needs=ALL_NEEDED, **changed) -> list[torch.Tensor]:
        """dq, dk, dv and dsinks, by the backend in force."""
        at = {"dout": self.dout, "dlse": self.dlse, "o": self.o, "lse": self.lse}
        at |= dict(zip(("q", "k", "v"), self.tensors, strict=False))
        options = cases.options(self.case, *self.tensors[3:])
        at |= {name: options.pop(name) for name in ("causal", "scale")} | changed
        window_left, window_right = options.pop("window", (None, None))
        names = ("dout", "dlse", "q", "k", "v", "o", "lse", "causal", "scale")
        return torch.ops.thunderkittens.attention_backward(
            *(at[name] for name in names),
            needs,
            window_left=window_left,
            window_right=window_right,
            **options,
        )

    def check(self, got) -> None:
        """Asserts the gradients against float64."""
        got = [*got[:3], got[3] if self.case.sinks else None]
        reference = cases.Reference(self.case, *self.tensors)
        reference.check_gradients(self.dout, self.dlse, *got)


def equal(got, want) -> bool:
    return all(map(memory.bits_equal, got, want))


# ---- Numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("index", "case"), list(enumerate(ALL)), ids=str)
def test_against_float64(simulator, index, case):
    """Right, within its tensors, whatever lies beside them, and by the kernel."""
    problem = Problem.make(case, with_lse=index % 2 == 1)
    before = launches("attention_backward")

    def run(dout, *tensors):
        return dataclasses.replace(problem, tensors=list(tensors)).backward(dout=dout)

    with simulator():
        got = guarded.run(run, problem.dout, *problem.tensors)
    assert launches("attention_backward") == before + 1
    assert all(t.is_contiguous() for t in got)
    problem.check(got)


def test_many_sequences(simulator):
    """More than the 256 that a warp finds the starts of at a time; most have no rows."""
    ends = (*[0] * 250, *range(1, 31), 90)
    problem = Problem.make(Case(100, 100, True, 1, **packed(ends, ends)))
    with simulator():
        problem.check(problem.backward())


def test_rows_that_see_no_key_are_zeros(simulator):
    """What comes in through their lse is dropped, be it NaN."""
    problem = Problem.make(Case(200, 60, True, 2, 64))
    spoilt = problem.dlse.clone()
    spoilt[..., :140] = math.nan
    with simulator():
        got, again = problem.backward(), problem.backward(dlse=spoilt)
    assert not got[0][:, :140].any() and bool(got[0][:, 140:].any())
    assert equal(again, got)


@pytest.mark.parametrize("needs", [(1, 0, 0, 0), (0, 1, 0, 1), (0, 0, 1, 0), (1, 0, 1, 1)], ids=str)
def test_gradients_that_are_needed(simulator, needs):
    """The same bits as with all."""
    problem = Problem.make(Case(70, 90, True, 2, 64, sinks=BF16))
    with simulator():
        full, some = problem.backward(), problem.backward(list(map(bool, needs)))
    for t, want, need in zip(some, full, needs, strict=True):
        assert memory.bits_equal(t, want) if need else t.shape == (0,)


@pytest.mark.parametrize("layout", [layout for layout in layouts.LAYOUTS if layout != "packed"])
def test_strides_change_no_bit(simulator, layout):
    """Of the forward's tensors, of o, lse and of what comes in."""
    problem = Problem.make(Case(40, 66, True, 2, 64, batch=2))
    if layout == "expanded":
        k, v = (t[:1].expand_as(t).contiguous() for t in problem.tensors[1:])
        problem = Problem.of(
            problem.case,
            [problem.tensors[0], k, v],
            problem.dout[:1].expand_as(problem.dout).contiguous(),
            problem.dlse,
        )
    moved = layouts.lay_out(problem.tensors, layout)
    _, dout, o = layouts.lay_out([problem.o, problem.dout, problem.o], layout)
    if layout == "expanded":
        o = problem.o
    twice = [t.repeat_interleave(2, -1)[..., ::2] for t in (problem.lse, problem.dlse)]
    with simulator():
        want = problem.backward()
        changed = dataclasses.replace(problem, tensors=moved, o=o, lse=twice[0])
        assert equal(changed.backward(dout=dout, dlse=twice[1]), want)


@pytest.mark.parametrize("case", OF_EACH_KIND, ids=str)
def test_policies_agree(simulator, case):
    """The order of threads, blocks and asynchronous work changes no bit; nor does a repetition."""
    problem = Problem.make(case)
    with simulator(threads=1):
        want = problem.backward()
    for options in POLICIES:
        with simulator(**options):
            assert equal(problem.backward(), want), options


@pytest.mark.skipif(not _loader.SIMULATOR_RACE.is_file(), reason="race mode is not built")
@pytest.mark.parametrize("case", OF_EACH_KIND, ids=str)
def test_no_races(simulator, case):
    """Nothing is left to chance in shared memory, and the numbers are those without race mode."""
    problem = Problem.make(case)
    with simulator():
        want = problem.backward()
    with simulator(policy="random", seed=3, race=True):
        assert equal(problem.backward(), want)


# ---- What is not finite, and what is large -------------------------------------------------------


@pytest.mark.parametrize(
    ("head_dim", "value"), [(64, math.nan), (128, math.inf), (256, -math.inf)], ids=str
)
def test_a_row_that_is_not_finite_spoils_its_dq_alone(simulator, head_dim, value):
    """Of q or dout. (It reaches dk and dv of all keys: those of a tile are one product.)"""
    case = Case(150, 140, True, 2, head_dim)
    problem = Problem.make(case)
    with simulator():
        want = problem.backward()[0]
        spoilt = problem.dout.clone()
        spoilt[0, 100, 1, 5] = value
        dq = problem.backward(dout=spoilt)[0]
        assert dq[0, 100, 1].isnan().all()
        dq[0, 100, 1] = want[0, 100, 1]
        assert memory.bits_equal(dq, want)
        spoilt = problem.tensors[0].clone()
        spoilt[0, 99, 0, 3] = value
        again = Problem.of(case, [spoilt, *problem.tensors[1:]], problem.dout, problem.dlse)
        dq = again.backward()[0]
        assert not dq[0, 99, 0].isfinite().any()
        dq[0, 99, 0] = want[0, 99, 0]
        assert memory.bits_equal(dq, want)


@pytest.mark.parametrize(("head_dim", "which", "value"), SPOILT_KEYS, ids=str)
def test_a_key_that_is_not_finite_spoils_the_rows_that_see_it(simulator, head_dim, which, value):
    """Of its key head alone, and none in tiles that do not see it."""
    # The rows of tiles of 64, 128 or 192, in both directions, before the blocks of the key.
    before, key = (192, 270) if head_dim == 64 else (128, 170)
    case = Case(key + 20, key + 20, True, 1, head_dim, key_heads=2)
    problem = Problem.make(case)
    at = {"k": 1, "v": 2}[which]
    spoilt = [t.clone() for t in problem.tensors]
    spoilt[at][0, key, 1, 7 if head_dim == 128 else 0] = value  # a lane's last, or its first
    again = Problem.of(case, spoilt, problem.dout, problem.dlse)
    with simulator():
        want, dq = problem.backward()[0], again.backward()[0]
    finite = dq[0, :, 1].isfinite().all(-1)
    assert bool(finite[:before].all())
    assert not bool(finite[key:].any())
    if (which, value) != ("k", math.inf):  # of which the weight may be 0, and dq NaN in one column
        assert not bool(dq[0, key:, 1].isfinite().any())
    torch.testing.assert_close(dq[0, :, 1][finite], want[0, :, 1][finite], rtol=2**-7, atol=1e-5)
    assert memory.bits_equal(dq[0, :, 0].contiguous(), want[0, :, 0].contiguous())


@pytest.mark.parametrize("sink", [10.0, 25.0], ids=str)
def test_a_sink_that_takes_nearly_all_weight(simulator, sink):
    """What is left to the keys has gradients that are right relative to themselves."""
    case = Case(70, 90, False, 2, 64, sinks=FP32)
    tensors = [*cases.make(case)[:3], torch.tensor([sink, -sink])]
    problem = Problem.of(case, tensors, *cases.incoming(case, "cpu", with_lse=True))
    with simulator():
        got = problem.backward()
    problem.check(got)
    weights = math.exp(-sink)  # and dq grows with them, from sums of numbers of size 1
    assert weights < float(got[0][:, :, 0].abs().max()) < 1e3 * weights


@pytest.mark.parametrize("size", [10.0, 1000.0], ids=str)
@pytest.mark.parametrize("which", ["v", "dout"])
def test_outliers(simulator, which, size):
    """A row of v or of dout that is much larger than the others."""
    problem = Problem.make(Case(130, 200, True, 2, 64), with_lse=False)
    t = problem.dout if which == "dout" else problem.tensors[2]
    t[:, 77] *= size
    again = Problem.of(problem.case, problem.tensors, problem.dout)
    with simulator():
        again.check(again.backward())


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_sums_as_large_as_their_bound(simulator, head_dim):
    """Each row sees two keys, and their parts of dq add up: |dq| is |do| |v| |k|, or a third of it.

    The bound is that of a head's keys: one of them, another in each batch, is 1000 times larger.
    In a second call lse's gradient takes delta away, which is of the outlier's size.
    """
    outliers = (0, 1, 16, 17, 127, 128, 129)
    case = Case(130, 130, True, 1, head_dim, batch=len(outliers), window_left=1)
    sign = torch.tensor([1.0, -1.0]).repeat(65).view(1, -1, 1, 1).expand(len(outliers), 130, 1, 1)
    once = torch.ones(head_dim)
    q, k, v, dout = 0 * sign * once, sign * once, sign * once, sign.abs() * once
    v = v.clone()
    for batch, key in enumerate(outliers):
        v[batch, key] *= 1000
    problem = Problem.of(case, [t.to(BF16) for t in (q, k, v)], dout.to(BF16))
    delta = (problem.dout.float() * problem.o.float()).sum(-1).transpose(1, 2).contiguous()
    with simulator():
        for dlse in (None, delta):
            problem = dataclasses.replace(problem, dlse=dlse)
            problem.check(problem.backward())


@pytest.mark.parametrize("exponent", [-112, -100, -66, -40, 40, 50, 99])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_gradients_of_any_size(simulator, head_dim, exponent):
    """As many times as dout; to the bit, where its squares are far from float32's ends."""
    problem = Problem.make(Case(70, 90, True, 1, head_dim), with_lse=False)
    with simulator():
        want, got = problem.backward(), problem.backward(dout=problem.dout * 2.0**exponent)
    allowed = 0.0 if abs(exponent) <= 40 else 2 * tolerance.unit(BF16)
    for t, other in zip(got, want, strict=True):
        error = t.double() * 2.0**-exponent - other.double()
        assert error.norm() <= allowed * other.double().norm()


def test_an_overflow_of_fp16_is_not_a_number(simulator):
    """ds rounds to fp16: past its largest number dq is NaN, never the largest integer's."""
    problem = Problem.make(Case(40, 40, False, 1, 64, FP16), with_lse=False)
    problem.tensors[1] *= 1e-3
    problem.tensors[2] *= 300
    problem.dout[:, 7] *= 3000
    again = Problem.of(problem.case, problem.tensors, problem.dout)
    with simulator():
        dq = again.backward()[0]
    assert dq[0, 7].isnan().all()
    dq[0, 7] = 0
    assert dq.isfinite().all()


# ---- Which calls the kernel takes ----------------------------------------------------------------


def test_fallback_says_why(simulator):
    """Blocks are counted in int; of no memory, as each stride is 0."""

    def zeros(rows: int) -> torch.Tensor:
        return torch.zeros(1, 1, 1, 64, dtype=BF16).expand(1, rows, 512, 64)

    q, k, lse = zeros(1), zeros(2**29), torch.zeros(1, 1, 1).expand(1, 512, 1)
    reason = f"1 batches of 512 heads of 1 queries and {2**29} keys are too many"
    before = launches("attention_backward")
    with simulator():
        leaf = q.detach().requires_grad_()
        found = str(thunderkittens.explain("attention", leaf, k, k))
        assert found.endswith(f"its backward is computed by torch: {reason}")
        with pytest.raises(RuntimeError, match=f"^attention_backward: computed by torch: {reason}"):
            torch.ops.thunderkittens.attention_backward(
                q, None, q, k, k, q, lse, False, None, ALL_NEEDED
            )
    assert launches("attention_backward") == before


@pytest.mark.parametrize(
    "change",
    [
        {"softcap": 3.0},
        {"head_dim": 136},
        {"value_dim": 192},
        packed((0, 2, 6), (0, 5, 7)),
    ],
    ids=str,
)
def test_no_other_call_of_the_forward_falls_back(simulator, change):
    case = Case(6, 7, **change)
    q, *others = cases.make(case)
    with simulator():
        found = thunderkittens.explain(
            "attention", q.requires_grad_(), *others[:2], **cases.options(case, *others[2:])
        )
    assert "its backward is computed by a kernel, too" in found.notes
