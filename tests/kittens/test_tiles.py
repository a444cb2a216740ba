"""The C++ tests of the tile layer, the seam and the simulator: each `test_*.cu` is a program.

`make -C tests` runs these alone, with a summary.
"""

import contextlib
from pathlib import Path

import pytest

from build_tools import simulator, tiles
from build_tools.settings import BuildError


@pytest.fixture(scope="session")
def built(request) -> None:
    """Builds what is going to run, all at once; a test whose program fails to build says so."""
    places: dict[str, set[str]] = {}
    for item in request.session.items:
        if item.path == Path(__file__) and not item.get_closest_marker("skip"):
            place = tiles.GPU if item.get_closest_marker("gpu") else tiles.POLICIES[0]
            places.setdefault(place, set()).add(item.callspec.params["name"])
    with contextlib.suppress(BuildError):
        for place, names in places.items():
            tiles.build(sorted(names), place)


def check(name: str, where: str) -> None:
    """Builds a program, runs it, and fails with what it printed unless all its tests pass."""
    executable = tiles.build([name], where)[name]
    outcome = tiles.run(name, executable, where)
    assert not outcome.failed, outcome.report


@pytest.mark.parametrize("policy", tiles.POLICIES)
@pytest.mark.parametrize("name", tiles.programs())
def test_in_the_simulator(name: str, policy: str, request) -> None:
    try:
        simulator.headers()
    except BuildError as reason:
        pytest.skip(str(reason))
    request.getfixturevalue("built")
    check(name, policy)


@pytest.mark.gpu
@pytest.mark.parametrize("name", tiles.programs(tiles.GPU))
def test_on_the_gpu(name: str, built) -> None:
    check(name, tiles.GPU)
