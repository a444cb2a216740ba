"""The environment of a program that a thread starts."""

import os


def environment(**settings: str) -> dict[str, str]:
    """A copy of this process's, with some settings.

    `os.environ | settings` raises KeyError where a name goes while it is copied, as pytest's
    PYTEST_CURRENT_TEST does between tests.
    """
    values = ((name, os.environ.get(name)) for name in list(os.environ))
    return {name: value for name, value in values if value is not None} | settings
