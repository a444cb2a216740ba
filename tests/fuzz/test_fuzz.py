"""The fuzz itself: it covers every op, passes where they are right, and notices what is wrong."""

import inspect

import pytest
import torch

import thunderkittens
from tests.fuzz import __main__ as command
from tests.fuzz import case, judge, session
from tests.fuzz.arithmetic import Arithmetic, Number
from tests.fuzz.draw import Draw
from tests.fuzz.judge import Judged
from tests.fuzz.placement import Placed, same_bits
from tests.fuzz.run import Outcome, Runner, Setting
from tests.tools import calls, families

TORCH, LARGE_TORCH = Setting("cpu", "torch"), Setting("cpu", "torch", large=True)
OPS = sorted(case.ops())
SEEDS = range(20)  # of each op; the command has the others
# By op: a GPU's cases that are to be seen without one.
LARGE = {m.OPS[0]: m.LARGE for m in families.each("fuzz*.py") if hasattr(m, "LARGE")}
FUNCTIONS = [
    name
    for name in thunderkittens.__all__
    if inspect.isfunction(getattr(thunderkittens, name))
    and getattr(thunderkittens, name).__module__.startswith("thunderkittens.ops")
]
NO_OPS = {"register_flash_attention"}  # which computes nothing: torch calls `attention` through it
NO_OPS |= {name for name in FUNCTIONS if name.endswith("_log_decay")}  # of no tensors
NO_OPS |= calls.of_torch()


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_every_public_op_is_covered():
    assert set(FUNCTIONS) - NO_OPS == set(OPS), "an op that no family's fuzz.py has"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", OPS)
def test_torch_passes(op):
    runner, tally = Runner(TORCH, control=True), session.Tally()
    for seed in SEEDS:
        outcome = runner.run(op, seed)
        assert not outcome.failures, session.line(TORCH, op, seed, "; ".join(outcome.failures))
        tally.count(op, False, outcome.noticed)
    assert tally.noticed >= 0.7 * tally.spoilt > 0, tally.summary()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", LARGE)
def test_large_cases_pass(op):
    for seed in LARGE[op]:
        outcome = Runner(LARGE_TORCH).run(op, seed)
        words = "; ".join(outcome.failures)
        assert not outcome.failures, session.line(LARGE_TORCH, op, seed, words)


@pytest.mark.parametrize("op", OPS)
def test_a_case_repeats_to_the_bit(op):
    one, other = (Runner(TORCH).first_results(op, 7) for _ in range(2))
    assert one.keys() == other.keys()
    assert all(bool(same_bits(one[name], other[name])) for name in one)


@pytest.mark.parametrize("op", OPS)
def test_seeds_differ(op):
    titles = {case.ops()[op].make(Draw(op, seed, "cpu"), op).title for seed in range(8)}
    assert len(titles) == 8


# ---- What is wrong is noticed -------------------------------------------------------------------


def failures_of(monkeypatch, change, op="rms_norm", seeds=range(12)) -> str:
    """What is said where `change` is done to the result of the op."""
    function = getattr(thunderkittens, op)
    monkeypatch.setattr(thunderkittens, op, lambda *a, **k: change(function(*a, **k), a, k))
    runner = Runner(TORCH)
    return "\n".join(text for seed in seeds for text in runner.run(op, seed).failures)


def test_a_wrong_element_is_named(monkeypatch):
    def spoil(y, given, options):
        factor = torch.ones_like(y)
        factor.view(-1)[-1:] = 1.1
        return y * factor

    assert "are wrong)" in failures_of(monkeypatch, spoil)


def test_a_read_of_neighbours_is_noticed(monkeypatch):
    def leak(y, given, options):
        x = options["x"]
        return y + 1e-30 * x.detach().as_strided((1,), (1,), 0).nan_to_num(1e30).to(y.dtype)

    assert "other bits in another run" in failures_of(monkeypatch, leak)


def test_a_write_beside_a_tensor_is_noticed(monkeypatch):
    def write(y, given, options):
        options["x"].data.as_strided((1,), (1,), 3).fill_(1.0)
        return y

    assert "x's memory was written" in failures_of(monkeypatch, write)


def test_an_element_that_nobody_writes_is_noticed(monkeypatch):
    def forget(y, given, options):
        first = torch.arange(y.numel()).view_as(y) == 0
        return torch.where(first, torch.empty_like(y), y)

    assert "= nan" in failures_of(monkeypatch, forget)


def test_an_error_is_a_failure(monkeypatch):
    def fail(y, given, options):
        raise RuntimeError("launch failed")

    assert "RuntimeError: launch failed" in failures_of(monkeypatch, fail)


def test_right_is_within_the_bound_and_special_values_are_exact():
    want = torch.tensor([1.0, 1.0, torch.nan, 7e4, -torch.inf, 0.0]).double()
    bound = torch.full_like(want, 0.01)
    bound[5] = torch.inf
    got = torch.tensor([1.005, 1.02, 1.0, torch.inf, torch.inf, torch.nan]).half()
    assert judge.right(got, Judged(want, bound)).tolist() == [True, False, False, True, False, True]


def test_errors_grow_with_the_condition_and_overflow_is_free():
    a = Arithmetic.of(torch.float32)
    x = Number(a, torch.tensor([1.0, 1e8, 1e30]).double())
    near = (x + 1.0) - x.value
    assert near.error[0] < 1e-6 < 1.0 < near.error[1]
    assert (x * x).error[2] == torch.inf
    assert Number(a, torch.zeros(1).double(), 1e-9).rsqrt().error == torch.inf


def test_placed_tensors_have_guards_and_keep_their_values():
    values = torch.arange(6.0).view(2, 3)
    placed = Placed(values, (0, 2), offset=1)
    view = placed.lay_out(0)
    assert view.stride() == (0, 2) and view.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert bool(placed.unchanged(False))
    view[0, 1] = 5
    assert not placed.unchanged(False) and placed.unchanged(True)
    placed.buffer[0] = 1
    assert not placed.unchanged(True)


# ---- The command --------------------------------------------------------------------------------


def test_command_summarises(capsys):
    words = "--cases 6 --only swiglu,gelu --device cpu --backend torch --control --seconds 60"
    assert command.main(words.split()) in (0, 1)
    last = capsys.readouterr().out.splitlines()[-3:]
    assert [line.split(",")[0] for line in last] == [
        "gelu: 3 cases",
        "swiglu: 3 cases",
        "all: 6 cases",
    ]


def test_large_cases_are_those_of_a_gpu():
    def sizes(**options):
        return [Draw("rotary", seed, **options).elements() for seed in range(20)]

    assert sizes(device="cpu", large=True) == sizes(device="cuda") != sizes(device="cpu")


def test_command_draws_large_cases(monkeypatch, capsys):
    monkeypatch.setattr(Runner, "_judged", lambda self, op, seed, case: Outcome([case.title]))
    for words in ([], ["--large"]):
        command.main(["--case", "gelu:3", "--device", "cpu", "--backend", "torch", *words])
    small, large = capsys.readouterr().out.splitlines()
    assert large.endswith("--backend torch --large") and small.endswith("--backend torch")
    assert small.split("[")[1] != large.split("[")[1]


def test_command_repeats_one_case(capsys):
    assert command.main(["--case", "rotary:3", "--device", "cpu", "--backend", "torch"]) == 0
    assert "rotary:3 is right" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        "--only nothing",
        "--case rotary:x",
        "--backend simulator --device cuda",
        "--race",
        "--generic --backend torch",
    ],
)
def test_command_refuses(words):
    with pytest.raises(SystemExit):
        command.main(words.split())
