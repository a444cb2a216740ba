"""Processes that a sandbox does not start at once.

Once, execve of a compiler answered EFAULT ("Bad address") for a path and arguments that were right,
and a run of all tests failed. 20,000 starts by threads, while others mapped memory, did not show it
again. Nothing of ours is in that call, so it is made once more, with a warning.
"""

import errno
import subprocess
import warnings

_Popen = subprocess.Popen


class _StartedAgain(_Popen):
    def __init__(self, *args, **options):
        try:
            super().__init__(*args, **options)
        except OSError as error:
            if error.errno != errno.EFAULT:
                raise
            warnings.warn(f"started again: {error}", stacklevel=2)
            super().__init__(*args, **options)


def again_after_bad_address() -> None:
    """From here on, in this process, for all that start processes by `subprocess`."""
    subprocess.Popen = _StartedAgain
