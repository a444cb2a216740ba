"""Mistakes of synchronisation, planted in the attention kernel: the simulator must find each one.

Each case changes one place of the kernel, or of what it uses, compiles attention_case.cu with it,
and runs that under several policies. At least one of them must end in a report that names the
cause, or in wrong numbers where the mistake leaves nothing else to see. Race mode must find its own
under each.
"""

import re
from pathlib import Path

import pytest

from build_tools.settings import ROOT, BuildError
from tests.kernels import planted
from tests.kernels.attention_mistakes import MISTAKES
from tests.kernels.attention_races import RACES
from tests.kernels.planted import POLICIES, Mistake

PROGRAM = ROOT / "tests/kernels/attention_case.cu"


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    """The programs, by the names of their mistakes; "" is the one without."""
    try:
        return planted.build(PROGRAM, (*MISTAKES, *RACES))
    except BuildError as reason:
        if "headers" not in str(reason):
            raise
        pytest.skip(str(reason))


@pytest.mark.parametrize("policy", [*POLICIES, *(f"{policy},race" for policy in POLICIES)])
def test_nothing_is_found_where_nothing_is(programs: dict[str, Path], policy: str):
    assert planted.run(programs[""], policy) == ""


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake_is_found(programs: dict[str, Path], mistake: Mistake):
    said = planted.run_all(programs[mistake.name])
    reports = [text for text in said.values() if re.search(mistake.found_as, text)]
    assert reports, f"{mistake.name} is not found as /{mistake.found_as}/: {said}"


@pytest.mark.parametrize("mistake", RACES, ids=lambda mistake: mistake.name)
def test_race_is_found_under_every_policy(programs: dict[str, Path], mistake: Mistake):
    for policy, said in planted.run_all(programs[mistake.name], ",race").items():
        assert re.search(mistake.found_as, said), f"{mistake.name} under {policy}: {said}"
