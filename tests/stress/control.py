"""`python -m tests.stress.control`: builds a package whose ring has lost its fence, for a control.

In it `release_after_loads` lacks the proxy fence, so that a bulk copy may overtake the loads of the
chunk that it overwrites: cross_entropy's gradients are wrong now and then, and the stress must see
it. Of all kernels it has cross_entropy's alone. It needs nvcc; what it builds runs elsewhere:

    python -m tests.stress --package build/stress/without_fence --only cross_entropy --must-fail
"""

import os
import shutil
import sys
from pathlib import Path

from build_tools import cuda, ops, settings
from build_tools.settings import PACKAGE, BuildError
from tests.kernels import planted
from tests.kernels.planted import Mistake

SOURCE = "csrc/kernels/cross_entropy/cross_entropy_sm90"
WITHOUT_FENCE = Mistake(
    name="without_fence",
    right="    arch::fence_async_proxy();\n",
    wrong="",
    found_as="",
    file="kittens/pipeline/ring.cuh",
)


def build() -> Path:
    """Builds the package.

    Returns:
        The folder that holds it.
    """
    toolkit, reason = cuda.toolkit()
    if toolkit is None:
        raise BuildError(reason)
    (right,) = [job for job in cuda.kernel_jobs(toolkit) if job.name.startswith(f"{SOURCE}.")]
    folder = settings.build_dir() / "stress" / WITHOUT_FENCE.name
    package = folder / PACKAGE.name
    shutil.rmtree(package, ignore_errors=True)
    made = shutil.ignore_patterns("__pycache__", "lib", "include", "_C.*.so")
    shutil.copytree(PACKAGE, package, ignore=made)
    ops.build(package, [planted.job_with(WITHOUT_FENCE, right)], f"stress/{WITHOUT_FENCE.name}")
    return folder


def main() -> int:
    try:
        folder = build()
    except BuildError as error:
        sys.exit(f"error: {error}")
    shown = os.path.relpath(folder)
    print(f"python -m tests.stress --package {shown} --only cross_entropy --must-fail")
    return 0


if __name__ == "__main__":
    sys.exit(main())
