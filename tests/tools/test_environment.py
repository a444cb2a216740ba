"""Environments of programs that threads start."""

import os
import sys
import threading

from tests.tools.environment import environment


def test_settings_are_in_a_copy(monkeypatch):
    monkeypatch.setenv("KITTENS_SIM", "lazy")
    copy = environment(KITTENS_SIM="eager", KITTENS_OTHER="1")
    assert copy == {**os.environ, "KITTENS_SIM": "eager", "KITTENS_OTHER": "1"}
    assert os.environ["KITTENS_SIM"] == "lazy"


def test_names_that_come_and_go_meanwhile(monkeypatch):
    """Threads change places often enough that `os.environ | {}` fails a hundred times."""
    name = "KITTENS_COMES_AND_GOES"
    monkeypatch.delenv(name, raising=False)
    ended = threading.Event()

    def change() -> None:
        while not ended.is_set():
            os.environ[name] = "1"
            del os.environ[name]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(2000):
            assert environment().get(name) in (None, "1")
    finally:
        ended.set()
        changing.join()
        sys.setswitchinterval(interval)
