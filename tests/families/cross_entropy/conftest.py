"""What the tests of cross_entropy in the simulator share."""

import pytest

from thunderkittens import _backend


@pytest.fixture
def last_first():
    """Two blocks, or clusters, have a place, and the last begin: the least that is promised."""
    library = _backend._simulator(race=False)
    before = _backend._options(library)
    _backend._configure(library, "lazy,threads=1,residents=2,spin=0.5")
    yield
    _backend._configure(library, before)
