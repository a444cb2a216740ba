"""The C++ tests of the tile layer, the seam and the simulator: each `test_*.cu` is a program.

`make -C tests` runs these alone, with a summary.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from build_tools import content, results, settings, simulator
from build_tools.settings import BuildError
from tests.tools import tiles
from tests.tools.ahead import called_ahead

SIMULATOR = tiles.POLICIES[0]  # of which all have the same programs


@pytest.fixture(scope="module")
def built(request) -> dict[tuple[str, str], Path]:
    """What is going to run, built all at once; a test whose program fails to build says so."""
    places: dict[str, set[str]] = {}
    for item in request.session.items:
        if item.path == Path(__file__) and not item.get_closest_marker("skip"):
            place = tiles.GPU if item.get_closest_marker("gpu") else SIMULATOR
            places.setdefault(place, set()).add(item.callspec.params["name"])
    programs = {}
    with contextlib.suppress(BuildError):
        for place, names in places.items():
            for name, executable in tiles.build(sorted(names), place).items():
                programs[name, place] = executable
    return programs


@pytest.fixture(scope="module")
def simulate(request, built) -> Iterator[Callable[[str, str], tiles.Outcome]]:
    """Runs a program under a policy."""

    def run(name: str, policy: str) -> tiles.Outcome:
        executable = built.get((name, SIMULATOR)) or tiles.build([name], SIMULATOR)[name]
        words = (content.of_file(tiles.__file__), content.of_file(executable), name, policy)
        key = content.of_words(*words, str(settings.jobs()))
        kept = results.read(key)
        if kept is not None:
            return tiles.Outcome(**kept)
        outcome = tiles.run(name, executable, policy)
        if not outcome.failed:
            results.write(key, dataclasses.asdict(outcome))
        return outcome

    with called_ahead(request, run, "name", "policy") as ahead:
        yield ahead


@pytest.mark.parametrize("policy", tiles.POLICIES)
@pytest.mark.parametrize("name", tiles.programs())
def test_in_the_simulator(name: str, policy: str, request) -> None:
    try:
        simulator.headers()
    except BuildError as reason:
        pytest.skip(str(reason))
    outcome = request.getfixturevalue("simulate")(name, policy)
    assert not outcome.failed, outcome.report


@pytest.mark.gpu
@pytest.mark.parametrize("name", tiles.programs(tiles.GPU))
def test_on_the_gpu(name: str, built) -> None:
    executable = built.get((name, tiles.GPU)) or tiles.build([name], tiles.GPU)[name]
    outcome = tiles.run(name, executable, tiles.GPU)
    assert not outcome.failed, outcome.report
