"""A failure of a C++ test reaches whoever runs it: NaNs, crashes, hangs, and no tests at all."""

import pytest

from build_tools import simulator
from build_tools.settings import BuildError
from tests.tools import tiles


def script(tmp_path, body: str):
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_every_kind_of_failing_check_fails():
    try:
        simulator.headers()
    except BuildError as reason:
        pytest.skip(str(reason))
    program = simulator.build_test(tiles.FOLDER / "sim/failing.cu")
    outcome = tiles.run("sim/failing.cu", program, "eager")
    assert (outcome.passed, outcome.failed) == (1, 6), outcome.report
    assert "nan_in_a_tile" in outcome.report and "throws a reason" in outcome.report
    assert "element (2, 5) is nan, not 1" in outcome.report


def test_a_program_that_passes(tmp_path):
    outcome = tiles.run("x", script(tmp_path, "echo '3 passed, 0 failed'"), "lazy")
    assert (outcome.passed, outcome.failed, outcome.report) == (3, 0, "")


@pytest.mark.parametrize(
    ("body", "counts", "reason"),
    [
        ("echo 'FAILED two'; echo '1 passed, 1 failed'; exit 1", (1, 1), "FAILED two"),
        ("echo '1 passed, 0 failed'; kill -SEGV $$", (1, 1), "exits with -11"),
        ("kill -SEGV $$", (0, 1), "exits with -11"),
        ("exit 0", (0, 1), "exits with 0"),
        ("echo started; exec sleep 60", (0, 1), "has not ended after 1 s"),
    ],
    ids=["fails", "crashes at the end", "crashes", "says nothing", "hangs"],
)
def test_a_program_that_does_not(tmp_path, monkeypatch, body, counts, reason):
    monkeypatch.setattr(tiles, "TIMEOUT_SECONDS", 1)
    outcome = tiles.run("ops/x.cu", script(tmp_path, body), "random:2")
    assert (outcome.passed, outcome.failed) == counts
    assert reason in outcome.report and "KITTENS_SIM=random:2" in outcome.report


def test_the_suite_fails_with_one_program(tmp_path, monkeypatch, capsys):
    programs = {"good": "echo '2 passed, 0 failed'", "bad": "echo '1 passed, 1 failed'; exit 1"}
    for name, body in programs.items():
        (tmp_path / name).mkdir()
        programs[name] = script(tmp_path / name, body)
    monkeypatch.setattr(tiles, "programs", lambda where="": list(programs))
    monkeypatch.setattr(tiles, "build", lambda names, where: {n: programs[n] for n in names})
    monkeypatch.setattr(tiles, "_gpu", lambda: ("", "none here"))
    assert tiles.suite([]) == 1
    assert "2 programs under eager, lazy, random:1, random:2,race: 12 passed, 4 failed" in (
        capsys.readouterr().out
    )
    assert tiles.suite(["good"]) == 0
    with pytest.raises(BuildError, match="is named ugly"):
        tiles.suite(["ugly"])
