"""How far a build is and how long it will take: in its output, and where pip hides that.

What is left is estimated from `compile_seconds.json`, the seconds that each file took once, and
from how fast this build has been so far. pip and uv show what a backend prints only when asked to
(-v), or when it has failed. They leave a person before a spinner for minutes, so the same lines are
written to that person's terminal, where there is one.
"""

import contextlib
import functools
import json
import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from build_tools.job import Job

SECONDS = Path(__file__).with_name("compile_seconds.json")
VARIABLE = "THUNDERKITTENS_PROGRESS"
PRIOR = 0.1  # of a build: for how much the recorded speed counts beside the observed one
_NO = ("", "0", "false", "no")
_terminal: "_Terminal | None" = None


class Progress:
    """Counts the jobs of a build that are done; several threads may tell it so."""

    def __init__(self, jobs: Sequence[Job], workers: int) -> None:
        """Begins the clock of jobs of which so many run at a time."""
        self._weights = {job: seconds(job) for job in jobs}
        self._whole = sum(self._weights.values())
        self._workers = workers
        self._done = self._running = 0.0
        self._begun = time.monotonic()
        self._lock = threading.Lock()

    def begin(self, job: Job) -> None:
        """Notes that a job has begun."""
        with self._lock:
            self._running += self._weights[job]

    def end(self, job: Job) -> None:
        """Notes that a job has ended."""
        with self._lock:
            self._running -= self._weights[job]
            self._done += self._weights[job]

    def left(self) -> float:
        """Returns about how many seconds are left."""
        with self._lock:
            done = min(self._whole, self._done + self._running / 2)
        elapsed = time.monotonic() - self._begun
        prior = PRIOR * self._whole
        pace = (elapsed + prior / self._workers) / (done + prior)  # seconds for a recorded one
        return (self._whole - done) * pace


def seconds(job: Job) -> float:
    """Returns what a job is known to take of one core; of an unknown file, what most do."""
    known = recorded()
    return known.get(job.name) or statistics.median(known.values() or [10.0])


@functools.cache
def recorded() -> dict[str, float]:
    """Returns the seconds of each file, which `python -m build_tools costs --write` keeps."""
    try:
        return json.loads(SECONDS.read_text())
    except (OSError, ValueError):
        return {}


def duration(seconds: float) -> str:
    """Returns a duration in words, as exact as an estimate is."""
    if seconds < 55:
        return f"{max(5, 5 * round(seconds / 5))} s"
    minutes, rest = divmod(10 * round(seconds / 10), 60)
    return f"{minutes} min {rest} s" if minutes < 10 and rest else f"{minutes + rest // 30} min"


def say(line: str) -> None:
    """Prints a line, and writes it to the terminal that `show_on_terminal` has found."""
    print(line, flush=True)
    if _terminal is not None:
        _terminal.say(line)


def show_on_terminal(shown: bool = True, front_end: Sequence[str] = ()) -> None:
    """Has `say` write to the controlling terminal too, if whoever sits there sees nothing else.

    Not where this process prints to a terminal itself, the front end passes on what it prints or
    was asked to be quiet, CI is set, or THUNDERKITTENS_PROGRESS is 0.

    Args:
        shown: False ends it.
        front_end: The command line of the program that has asked for the build, such as pip's.
    """
    global _terminal
    _terminal = None
    off = os.environ.get(VARIABLE) == "0" or os.environ.get("CI", "").lower() not in _NO
    if shown and not (off or sys.stdout.isatty() or asks(front_end)):
        with contextlib.suppress(OSError):  # there is none
            _terminal = _Terminal()


class _Terminal:
    """The controlling terminal, on which a front end's spinner turns."""

    def __init__(self) -> None:
        self._file = open("/dev/tty", "w", encoding="utf-8")
        self._start = "\n"  # once: below the line with the spinner, which goes on in our next one
        self._clear = "\r" if os.environ.get("TERM", "dumb") == "dumb" else "\r\033[K"

    def say(self, line: str) -> None:
        """Writes a line in the place of the spinner; a job in the background is quiet."""
        with contextlib.suppress(OSError):  # it has been closed
            if os.tcgetpgrp(self._file.fileno()) == os.getpgrp():
                self._file.write(f"{self._start}{self._clear}{line}\n")
                self._file.flush()
                self._start = ""


def asks(front_end: Sequence[str]) -> bool:
    """Returns whether pip or uv was asked to show what a backend prints, or to show nothing."""
    for word in front_end:
        if word in ("--verbose", "--quiet") or re.fullmatch("-(v+|q+)", word):
            return True
    return any(os.environ.get(name, "").lower() not in _NO for name in ("PIP_VERBOSE", "PIP_QUIET"))
