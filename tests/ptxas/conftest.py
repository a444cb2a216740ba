"""The CUDA compiler that the tests of this folder need."""

import pytest

from build_tools import cuda, toolchain
from build_tools.settings import BuildError


@pytest.fixture(scope="module")
def toolkit() -> toolchain.Cuda:
    try:
        found, reason = cuda.toolkit()
    except BuildError as error:
        found, reason = None, str(error)
    if found is None:
        pytest.skip(reason)
    return found
