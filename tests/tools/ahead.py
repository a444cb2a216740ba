"""Calls that are made before the tests that wait for them, so that no core of the machine idles."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from build_tools import settings


@contextlib.contextmanager
def called_ahead(
    request: pytest.FixtureRequest, function: Callable, *names: str
) -> Iterator[Callable]:
    """Calls a function for all the tests of a module, as many at a time as the machine can.

    Args:
        request: Of the module's fixture, or of one of its tests.
        function: For processes, such as compilers, that leave this one nothing to do but wait.
        names: Of the tests' parameters, whose values are its arguments.

    Yields:
        What gives the result of such a call, or raises what it raised, once it has ended.
    """
    tests = [item for item in request.session.items if item.path == request.path]
    chosen = [item for item in tests if not item.get_closest_marker("skip")]
    parameters = [item.callspec.params for item in chosen if hasattr(item, "callspec")]
    wanted = [[of[name] for name in names] for of in parameters if of.keys() >= {*names}]
    with ThreadPoolExecutor(settings.jobs()) as pool:
        calls = {tuple(values): pool.submit(function, *values) for values in wanted}
        yield lambda *values: calls[values].result()
        pool.shutdown(cancel_futures=True)  # those of a session that was stopped
