"""Mistakes of synchronisation, planted in the attention kernel: the simulator must find each one.

Each case changes one place of the kernel, or of what it uses, and runs attention_case.cu with it
under several policies. At least one of them must end in a report that names the
cause, or in wrong numbers where the mistake leaves nothing else to see. Race mode must find its own
under each policy, of random ones under one by turns.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from build_tools.settings import ROOT, BuildError
from tests.families.attention.mistakes import MISTAKES
from tests.families.attention.races import RACES
from tests.tools import planted, switched
from tests.tools.ahead import called_ahead
from tests.tools.planted import POLICIES, Mistake

PROGRAM = ROOT / "tests/families/attention/programs/attention_case.cu"
EAGER, LAZY, *RANDOM = POLICIES


@pytest.fixture(scope="module")
def programs() -> dict[str, tuple[Path, int]]:
    """The programs, by the names of their mistakes, with their numbers; "" is the one without."""
    try:
        return switched.build(PROGRAM, (*MISTAKES, *RACES))
    except BuildError as reason:
        if "headers" not in str(reason):
            raise
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def run_right(request, programs: dict[str, tuple[Path, int]]) -> Iterator[Callable[[str], str]]:
    """What the kernel as it is comes to under a policy."""
    with called_ahead(request, partial(planted.run, programs[""][0]), "policy") as ahead:
        yield ahead


@pytest.fixture(scope="module")
def run_wrong(
    request, programs: dict[str, tuple[Path, int]]
) -> Iterator[Callable[[Mistake], dict[str, str]]]:
    """What a mistake comes to, in race mode under each policy, else until one finds it."""

    def run(mistake: Mistake) -> dict[str, str]:
        program, number = programs[mistake.name]
        if mistake not in RACES:
            return planted.run_until(program, mistake.found_as, number, mistake.test)
        return {
            policy: planted.run(program, f"{policy},race", number, mistake.test)
            for policy in policies_of(mistake)
        }

    with called_ahead(request, run, "mistake") as ahead:
        yield ahead


def policies_of(race: Mistake) -> tuple[str, str, str]:
    """Those under which a mistake is to be found: one of each kind."""
    return EAGER, LAZY, RANDOM[RACES.index(race) % len(RANDOM)]


@pytest.mark.parametrize("policy", [EAGER, *(f"{one},race" for one in (EAGER, LAZY, RANDOM[0]))])
def test_nothing_is_found_where_nothing_is(run_right: Callable[[str], str], policy: str):
    """Race mode looks for all that is looked for without it: once is enough of the latter.

    (Of the kernel under more random orders: tests/mutation.)
    """
    assert run_right(policy) == ""


def test_programs_that_have_mistakes_make_none_unasked(programs: dict[str, tuple[Path, int]]):
    several = {program for program, number in programs.values() if number > 1}
    assert several
    assert [planted.run(program, "random:1,race") for program in several] == [""] * len(several)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake_is_found(run_wrong: Callable[[Mistake], dict[str, str]], mistake: Mistake):
    said = run_wrong(mistake)
    reports = [text for text in said.values() if re.search(mistake.found_as, text)]
    assert reports, f"{mistake.name} is not found as /{mistake.found_as}/: {said}"


@pytest.mark.parametrize("mistake", RACES, ids=lambda mistake: mistake.name)
def test_race_is_found_under_each_kind_of_policy(
    run_wrong: Callable[[Mistake], dict[str, str]], mistake: Mistake
):
    said = run_wrong(mistake)
    assert len(said) == 3
    for policy, text in said.items():
        assert re.search(mistake.found_as, text), f"{mistake.name} under {policy}: {text}"
