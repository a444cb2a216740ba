"""What a build says of its progress, and to whom."""

import os
import pty
import subprocess
import sys

import pytest

from build_tools import compile, progress
from build_tools.job import Job
from build_tools.settings import ROOT


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when a test says so."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def jobs(**weights: float) -> list[Job]:
    return [Job(name=name, command=("true",), tool="") for name in weights]


def test_time_left_follows_the_pace(clock, monkeypatch):
    weights = {"a": 30.0, "b": 10.0, "c": 40.0}
    monkeypatch.setattr(progress, "recorded", lambda: weights)
    a, b, _ = queue = jobs(**weights)
    ahead = progress.Progress(queue, workers=2)
    assert ahead.left() == pytest.approx(80 / 2)  # at the recorded pace
    ahead.begin(a)
    ahead.begin(b)
    clock[0] += 60
    # A tenth of the 80 s, at the recorded pace, counts beside what is observed; of what runs, half.
    assert ahead.left() == pytest.approx((80 - 20) * (60 + 8 / 2) / (20 + 8))
    ahead.end(a)
    ahead.end(b)
    assert ahead.left() == pytest.approx((80 - 40) * (60 + 8 / 2) / (40 + 8))


def test_an_unknown_file_takes_what_most_do(monkeypatch):
    monkeypatch.setattr(progress, "recorded", lambda: {"a": 1.0, "b": 3.0, "c": 50.0})
    assert [progress.seconds(job) for job in jobs(c=0, new=0)] == [50.0, 3.0]
    monkeypatch.setattr(progress, "recorded", lambda: {})
    assert progress.seconds(*jobs(new=0)) > 0


def test_files_whose_seconds_are_recorded_are_there():
    for name in progress.recorded():
        stem = name.split(".")[0].removesuffix("/all")  # of a folder of sources
        found = (ROOT / stem).is_dir() or [*ROOT.glob(f"{stem}.*")]
        assert found, f"{name}: `python -m build_tools costs --write` drops it"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "5 s"),
        (33, "35 s"),
        (57, "1 min"),
        (160, "2 min 40 s"),
        (599, "10 min"),
        (700, "12 min"),
    ],
)
def test_duration(seconds, words):
    assert progress.duration(seconds) == words


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        ("pip install .", False),
        ("pip install -e . --no-deps", False),
        ("python -m pip install -v .", True),
        ("pip -vvv install .", True),
        ("uv pip install --quiet .", True),
        ("pip install -q .", True),
    ],
)
def test_front_ends_that_show_all_or_nothing(words, asks, monkeypatch):
    for name in ("PIP_VERBOSE", "PIP_QUIET"):
        monkeypatch.delenv(name, raising=False)
    assert progress.asks(words.split()) == asks


PROGRAM = """
import sys
from pathlib import Path
from build_tools import compile, progress
from build_tools.job import Job
progress.show_on_terminal(front_end=sys.argv[1:])
copy = ("cp", str(Path(compile.__file__)), "{output}")
compile.run([Job("copied", copy, "", depends=False, strict=(), shared=False)], "Copying")
progress.show_on_terminal(False)
progress.say("afterwards")
"""


def on_terminal(folder, *words: str, **variables: str) -> tuple[str, str]:
    """What PROGRAM writes to its terminal, and into the pipe that is its output."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"THUNDERKITTENS_BUILD_DIR": str(folder), "TERM": "xterm", "CI": ""}
    name = os.ttyname(theirs)
    begin = "import os, sys; os.setsid(); os.open(sys.argv.pop(1), os.O_RDWR);"  # now controlling
    command = [sys.executable, "-c", begin + "\n" + PROGRAM, name, *words]
    done = subprocess.run(
        command, cwd=ROOT, env=environment | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    os.write(theirs, b"\4")  # so that there is something to read
    seen = os.read(ours, 1 << 16).decode().replace("\r\n", "\n")
    os.close(ours)
    os.close(theirs)
    return seen.rstrip("\4"), done.stdout


def test_terminal_and_output_say_the_same(tmp_path):
    seen, printed = on_terminal(tmp_path, "pip", "install", ".")
    first, second, last = printed.splitlines()
    assert first.startswith("Copying: 1 of 1 to build, 1 at a time, about ")
    assert second.startswith("  [1/1] copied.o  ")
    assert seen == f"\n\r\033[K{first}\n\r\033[K{second}\n"
    assert last == "afterwards"


@pytest.mark.parametrize(
    ("words", "variables"),
    [((), {"CI": "true"}), ((), {"THUNDERKITTENS_PROGRESS": "0"}), (("pip", "-v"), {})],
    ids=["CI", "off", "verbose"],
)
def test_the_terminal_is_left_alone(tmp_path, words, variables):
    seen, printed = on_terminal(tmp_path, *words, **variables)
    assert seen == "" and "[1/1] copied.o" in printed


def test_what_is_there_is_not_spoken_of(tmp_path):
    on_terminal(tmp_path)
    seen, printed = on_terminal(tmp_path)
    assert (seen.strip(), printed) == ("", "afterwards\n")


def test_time_left_is_in_the_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("THUNDERKITTENS_BUILD_DIR", str(tmp_path))
    monkeypatch.setenv("THUNDERKITTENS_JOBS", "1")
    copy = ("cp", str(ROOT / "setup.py"), "{output}")
    several = [
        Job(n, copy, "", depends=False, strict=(), shared=False) for n in ("one", "two", "three")
    ]
    compile.run(several, "Copying")
    lines = capsys.readouterr().out.splitlines()
    assert ["left" in line for line in lines] == [False, True, True, False]
