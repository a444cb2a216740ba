"""A few cases of each op with the kernels in the simulator, and some in its race mode."""

import pytest
import torch

from tests.fuzz import case, session
from tests.fuzz.run import Runner, Setting
from thunderkittens._loader import SIMULATOR, SIMULATOR_RACE

OPS = sorted(case.ops())
SEEDS, RACE_SEEDS = range(47, 55), range(47, 49)

# Of these, factors underflow on the way to a result, or decays have large exponents.
AT_THE_ENDS = {
    "linear_attention": (14242, 14368),
    "mamba2": (14254, 14269, 14326, 14350, 14390),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("race", (False, True), ids=("plain", "race"))
@pytest.mark.parametrize("op", OPS)
def test_kernels_pass(op, race):
    if not (SIMULATOR_RACE if race else SIMULATOR).exists():
        pytest.skip("the simulator is not built: python -m build_tools simulator")
    setting = Setting("cpu", "simulator", race)
    runner = Runner(setting)
    for seed in RACE_SEEDS if race else SEEDS:
        outcome = runner.run(op, seed)
        assert not outcome.failures, session.line(setting, op, seed, "; ".join(outcome.failures))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", AT_THE_ENDS)
def test_bounds_hold_where_factors_underflow(op):
    if not SIMULATOR.exists():
        pytest.skip("the simulator is not built: python -m build_tools simulator")
    setting = Setting("cpu", "simulator")
    for seed in AT_THE_ENDS[op]:
        outcome = Runner(setting).run(op, seed)
        assert not outcome.failures, session.line(setting, op, seed, "; ".join(outcome.failures))
