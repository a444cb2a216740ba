"""A process that was not started for a bad address is started again, and for no other reason."""

import errno
import subprocess
import sys

import pytest

from tests.tools import starting

COMMAND = [sys.executable, "-c", "print(7)"]


@pytest.fixture
def refuse(monkeypatch):
    """A function: the system refuses so many starts with such a number."""
    start = starting._Popen.__init__
    numbers = []

    def refusing(self, *args, **options):
        if numbers:
            raise OSError(numbers.pop(), "refused")
        start(self, *args, **options)

    monkeypatch.setattr(starting._Popen, "__init__", refusing)
    return lambda times, number: numbers.extend([number] * times)


def test_it_is_what_tests_start_processes_by():
    assert subprocess.Popen is starting._StartedAgain


def test_a_bad_address_is_asked_for_once_more(refuse):
    refuse(1, errno.EFAULT)
    with pytest.warns(UserWarning, match="started again: .*refused"):
        done = subprocess.run(COMMAND, capture_output=True, text=True)
    assert done.stdout == "7\n"


@pytest.mark.parametrize(("times", "number"), [(2, errno.EFAULT), (1, errno.ENOENT)])
def test_what_stays_refused_is_an_error(refuse, times, number):
    refuse(times, number)
    with pytest.raises(OSError, match="refused"):
        subprocess.run(COMMAND, capture_output=True)
