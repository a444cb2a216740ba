"""Which mistakes are judged by a build that they share, and which alone."""

import dataclasses

import pytest

from build_tools import results
from tests.mutation import targets
from tests.mutation.bench import SURVIVED, Verdict
from tests.mutation.program import Program
from tests.tools import planted
from tests.tools.judge import Judge
from tests.tools.planted import Mistake

FILE = "kernels/example/kernel.cuh"
CODE = "KITTENS_DEVICE void consume() {\n  wait(0);\n  fence();\n  store(0);\n}\n"
FIRST, SECOND = (Program("example", "kernel", (f"CONFIGS={i}",)) for i in range(2))
RACE = Verdict("report", "kernel, lazy", "RACE at kernel.cuh:2", "stores")
ALONE = Verdict("report", "", "RACE")
NUMBERS = Verdict("numbers", "kernel", "o:0: is 1, not 2")


class Bench:
    """Gives the verdicts of a list, by programs and numbers; notes what it was asked for."""

    def __init__(self, said: dict[tuple[Program, int], Verdict], error: str = "") -> None:
        self.said, self.error = said, error
        self.built, self.unasked, self.alone = [], [], 0

    def world(self, program, family):
        return f"{program.name} {family}"

    def build(self, folder, program, executable):
        self.built.append(program)
        return self.error

    def run(self, executable, program, policies, number=0, tests=""):
        if number == 0:
            self.unasked.append((program, policies, tests))
        return self.said.get((program, number), SURVIVED)

    def judge_text(self, file, text, programs):
        self.alone += 1
        return ALONE


@pytest.fixture(autouse=True)
def example(monkeypatch):
    monkeypatch.setattr(planted, "source_of", lambda file: CODE)
    monkeypatch.setitem(targets.TARGETS, FILE, (FIRST, SECOND))
    monkeypatch.setattr(results, "read", lambda key: None)
    monkeypatch.setattr(results, "write", lambda key, verdict: None)


def mistake(right: str, program: str = "") -> Mistake:
    return Mistake("of_one_name", right, "", "RACE", FILE, program)


def test_those_that_are_found_share_a_build(tmp_path):
    some = [mistake("wait(0);"), mistake("fence();"), mistake("store(0);", SECOND.name)]
    bench = Bench({(FIRST, 1): RACE, (SECOND, 2): RACE, (SECOND, 3): RACE})
    assert [*map(Judge(bench, some, tmp_path), some)] == [RACE] * 3
    assert (bench.built, bench.alone) == ([FIRST, SECOND], 0)
    assert bench.unasked == [(FIRST, ("lazy",), "stores"), (SECOND, ("lazy",), "stores")]


def test_each_test_that_finds_one_must_find_nothing_unasked(tmp_path):
    some = [mistake("wait(0);"), mistake("fence();"), mistake("store(0);")]
    loads = dataclasses.replace(RACE, test="loads")
    bench = Bench({(FIRST, 1): RACE, (FIRST, 2): loads, (FIRST, 3): RACE})
    assert [*map(Judge(bench, some, tmp_path), some)] == [RACE, loads, RACE]
    assert [test for _, _, test in bench.unasked] == ["stores", "loads"]


@pytest.mark.parametrize("said", [SURVIVED, NUMBERS])
def test_what_is_not_found_as_it_should_be_is_judged_alone(said, tmp_path):
    one = mistake("fence();")
    bench = Bench({(FIRST, 1): said})
    assert Judge(bench, [one], tmp_path)(one) == ALONE
    assert bench.alone == 1


@pytest.mark.parametrize("bench", [Bench({}, "error: no"), Bench({(FIRST, 0): NUMBERS})])
def test_a_build_that_is_wrong_without_a_mistake_judges_none(bench, tmp_path):
    one = mistake("fence();")
    bench.said[FIRST, 1] = RACE
    with pytest.warns(UserWarning, match="no build of kernel CONFIGS=0 for several: (error|o:0)"):
        assert Judge(bench, [one], tmp_path)(one) == ALONE


def test_a_program_that_the_file_does_not_have(tmp_path):
    with pytest.raises(AssertionError, match="has no such program"):
        Judge(Bench({}), [mistake("fence();", "another")], tmp_path)
