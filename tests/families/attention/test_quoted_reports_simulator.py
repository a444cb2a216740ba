"""docs/simulator.md quotes reports as they print, but for numbers that wander."""

import re

import pytest

from build_tools import simulator
from build_tools.settings import BuildError
from tests.families.attention import quoted_reports
from tests.families.attention.mistakes import MISTAKES, WINDOWED
from tests.families.attention.races import RACES
from tests.tools import planted, switched

RENEW = "`python -m tests.families.attention.quoted_reports` regenerates it"


def without_numbers_that_wander(text: str) -> str:
    """Without lines of sources, and without errors, which change with the order of threads."""
    return re.sub(r"\d+\.\d+", "X", re.sub(r"\b(\w+\.cuh?):\d+", r"\1:N", text))


def test_reports_print_as_the_manual_quotes_them():
    try:
        simulator.headers()
    except BuildError as reason:
        pytest.skip(str(reason))
    quotes = quoted_reports.quotes()
    assert len(quotes) >= 3
    # The program that test_attention_mistakes.py has built, which makes these mistakes too.
    programs = switched.build(quoted_reports.PROGRAM, (*MISTAKES, *RACES))
    for mistake, policy, quoted in quotes:
        program, number = programs[mistake.name]
        printed = quoted_reports.of_the_first(planted.run(program, policy, number, WINDOWED))
        printed = printed.replace("::simulator_race::", "::simulator::")  # whose code is the same
        same = without_numbers_that_wander(printed) == without_numbers_that_wander(quoted)
        assert same, f"{mistake.name} under {policy}: {RENEW}\n{printed}"


def test_the_manual_shows_what_was_changed():
    manual = quoted_reports.MANUAL.read_text()
    shown = {"".join(line.split()) for line in manual.splitlines()}
    for mistake, _, _ in quoted_reports.quotes():
        assert mistake.applied()
        right, wrong = (
            {"".join(line.split()) for line in side.splitlines()}
            for side in (mistake.right, mistake.wrong)
        )
        changes = {f"-{line}" for line in right - wrong} | {f"+{line}" for line in wrong - right}
        assert changes - {"+"} <= shown, mistake.name
