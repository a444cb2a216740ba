"""Builds, tests and packages thunderkittens. Part of the source tree, not of the package.

Standard library only: it must run before anything is installed.
"""

import sys

if sys.version_info < (3, 10):  # noqa: UP036 (the one place that an older Python can reach)
    sys.exit(
        f"error: Python: found {sys.version.split()[0]}, needed 3.10 or newer; "
        "name another one, as in `make PYTHON=python3.12 test`"
    )
