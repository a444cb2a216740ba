"""A few cases of each op with the kernels in the simulator, and some in its race mode."""

import pytest
import torch

from tests.fuzz import case, session
from tests.fuzz.run import Runner, Setting
from tests.tools import families
from thunderkittens._loader import SIMULATOR, SIMULATOR_RACE

OPS = sorted(case.ops())
SEEDS, RACE_SEEDS = range(47, 55), range(47, 49)

# By op: cases whose bounds were wrong once, at the ends of a dtype's range.
AT_THE_ENDS = {
    module.OPS[0]: module.AT_THE_ENDS
    for module in families.each("fuzz*.py")
    if hasattr(module, "AT_THE_ENDS")
}
# By op: a GPU's cases whose bounds were wrong of kernels alone.
LARGE_KERNELS = {
    module.OPS[0]: module.LARGE_KERNELS
    for module in families.each("fuzz*.py")
    if hasattr(module, "LARGE_KERNELS")
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
@pytest.mark.parametrize(
    ("op", "large"), [*((op, False) for op in AT_THE_ENDS), *((op, True) for op in LARGE_KERNELS)]
)
def test_bounds_hold_where_they_were_wrong(op, large):
    if not SIMULATOR.exists():
        pytest.skip("the simulator is not built: python -m build_tools simulator")
    setting = Setting("cpu", "simulator", large=large)
    for seed in (LARGE_KERNELS if large else AT_THE_ENDS)[op]:
        outcome = Runner(setting).run(op, seed)
        assert not outcome.failures, session.line(setting, op, seed, "; ".join(outcome.failures))
