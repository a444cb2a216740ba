"""`python -m tests.stress.control`: builds a package with a mistake that the stress must see.

Which one, a family's stress_control.py says: SOURCE, the MISTAKE that is planted in it, and ONLY,
the problems that show it. Of all kernels the package has that source's alone. It needs nvcc; what
it builds runs elsewhere, by the command that it prints:

    python -m tests.stress --package build/stress/NAME --only TEXT --must-fail
"""

import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

from build_tools import cuda, ops, settings
from build_tools.settings import PACKAGE, BuildError
from tests.tools import families, planted


def build(control: ModuleType) -> Path:
    """Builds the package of one control.

    Returns:
        The folder that holds it.
    """
    toolkit, reason = cuda.toolkit()
    if toolkit is None:
        raise BuildError(reason)
    source, mistake = f"{control.SOURCE}.", control.MISTAKE
    (right,) = [job for job in cuda.kernel_jobs(toolkit) if job.name.startswith(source)]
    folder = settings.build_dir() / "stress" / mistake.name
    package = folder / PACKAGE.name
    shutil.rmtree(package, ignore_errors=True)
    made = shutil.ignore_patterns("__pycache__", "lib", "include")
    shutil.copytree(PACKAGE, package, ignore=made)
    ops.build(package, [planted.job_with(mistake, right)], f"stress/{mistake.name}")
    return folder


def main() -> int:
    for control in families.each("stress_control.py"):
        try:
            folder = build(control)
        except BuildError as error:
            sys.exit(f"error: {error}")
        shown = os.path.relpath(folder)
        print(f"python -m tests.stress --package {shown} --only {control.ONLY} --must-fail")
    return 0


if __name__ == "__main__":
    sys.exit(main())
