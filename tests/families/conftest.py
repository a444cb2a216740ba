"""What the families' tests of planted mistakes share: programs that notice, and their verdicts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from build_tools import settings, simulator
from build_tools.settings import BuildError
from tests.mutation.bench import Bench, Verdict
from tests.tools import planted
from tests.tools.ahead import called_ahead
from tests.tools.judge import Judge
from tests.tools.planted import Mistake


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest) -> Bench:
    """Judges mistakes by the programs that are to notice one of the module's."""
    programs = (program for one in request.module.MISTAKES for program in planted.programs(one))
    try:
        return Bench([*dict.fromkeys(programs)], level=simulator.fast_flags())
    except BuildError as reason:
        if "headers" not in str(reason):
            raise
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def judge(request: pytest.FixtureRequest, bench: Bench) -> Iterator[Callable[[Mistake], Verdict]]:
    """What becomes of a test's `mistake`."""
    scratch = settings.build_dir() / "mistakes"
    scratch.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=scratch) as folder:
        one = Judge(bench, request.module.MISTAKES, Path(folder))
        with called_ahead(request, one, "mistake") as ahead:
            yield ahead
