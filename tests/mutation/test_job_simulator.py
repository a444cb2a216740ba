"""The job kills what it must, says so of what it does not, and a sample of the mutants dies."""

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from build_tools.settings import BuildError
from tests.mutation import __main__ as command
from tests.mutation import bench as bench_module
from tests.mutation import job, targets
from tests.mutation.bench import CPU_SECONDS, SURVIVED, Bench, Verdict, _run
from tests.mutation.listed import Listed
from tests.tools import planted
from tests.tools.ahead import called_ahead
from tests.tools.planted import Mistake

SAMPLE = 30  # two minutes of 2 cores, where nothing is known of them
CONSUMER = "kernels/attention/attention_consumer.cuh"
PRODUCER = "kernels/attention/attention_producer.cuh"
SOFTMAX = "kernels/attention/attention_softmax.cuh"
ROW = "kernels/norm/row.cuh"


def change(file: str, right: str, wrong: str, found_as: str) -> Mistake:
    name = f"{Path(file).stem}: {right} → {wrong or 'nothing'}"
    return Mistake(name, right, wrong, found_as, file)


# What is planted, and what comes of it.
PLANTED = (
    (change(PRODUCER, "shared.k_ring.wait_empty(at);", "", "arriv|bytes|phase"), "report"),
    (change(SOFTMAX, "keys - first_key, kHidden", "keys, kHidden", "lse|o:"), "numbers"),
    (change(CONSUMER, "order::start(w);", "", "DEADLOCK"), "report"),
    (change(CONSUMER, "order::start(w);", "order::start(w)", "error"), "compile"),
    (change(ROW, "arch::named_barrier_sync(barrier, warps * kWarp);", "", "RACE"), "report"),
    (change(ROW, "at == Stages - 1 ? 0 : at + 1;", "at + 1;", "shared"), "report"),
    (
        change(ROW, "half ^= 1;", "for (volatile int i = 0; i == 0;) {}", f"{CPU_SECONDS} s"),
        "timeout",
    ),
    (change(ROW, "half ^= 1;", "__builtin_trap();", "signal"), "crash"),
)


@pytest.fixture(scope="module")
def bench() -> Bench:
    try:
        return Bench(targets.programs())
    except BuildError as reason:
        if "headers" not in str(reason):
            raise
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def judge(request, bench: Bench) -> Iterator[Callable[[Mistake], Verdict]]:
    with called_ahead(request, partial(planted.judge, bench), "mistake") as ahead:
        yield ahead


def test_nothing_is_noticed_where_nothing_is(bench):
    """Of all targets, by each of the programs that run them."""
    runs = {program: file for file, some in targets.TARGETS.items() for program in some}
    work = [(file, targets.text(file), (program,)) for program, file in runs.items()]
    noticed = [verdict for verdict in bench.judge_all(work) if verdict != SURVIVED]
    assert not noticed
    for file, some in targets.TARGETS.items():
        assert bench.judge_text(file, targets.text(file), some) == SURVIVED  # as it is remembered


@pytest.mark.parametrize(
    ("mistake", "outcome"), PLANTED, ids=lambda value: getattr(value, "name", value)
)
def test_mistake_is_noticed(bench, judge, mistake, outcome):
    verdict = judge(mistake)
    assert verdict.outcome == outcome
    assert re.search(mistake.found_as, verdict.said), verdict
    assert verdict.noticed == (outcome != "compile")
    assert planted.judge(bench, mistake) == verdict  # as it is remembered


def result(outcome: str, entry: Listed | None = None) -> job.Result:
    return job.Result(job.mutants()[0], Verdict(outcome), entry)


EQUIVALENT = Listed("", "", "", "no difference")


def test_score_counts_what_could_be_noticed():
    dead = [result(outcome) for outcome in ("report", "numbers", "crash", "timeout")]
    free = [result("compile"), result("survived", EQUIVALENT)]
    assert job.score(dead + free) == 1
    assert job.score([*dead, *free, result("survived")]) == pytest.approx(4 / 5)


def test_survivors_and_untrue_entries_are_complained_of():
    assert not job.complaints([result("report"), result("survived", EQUIVALENT)])
    assert job.complaints([result("survived")])[0].startswith("survived: kernels/")
    assert "but noticed" in job.complaints([result("report", EQUIVALENT)])[0]


@pytest.mark.parametrize("outcome, status", [("survived", 1), ("report", 0)])
def test_command_fails_where_one_survives(monkeypatch, capsys, outcome, status):
    monkeypatch.setattr(sys, "argv", ["mutation", "--sample", "2"])
    monkeypatch.setattr(job, "run", lambda chosen: [result(outcome) for _ in chosen])
    assert command.main() == status
    assert ("survived: " in capsys.readouterr().out) == (status == 1)


def test_kernel_that_fails_itself_is_not_mutated(bench, monkeypatch):
    text = targets.text
    monkeypatch.setattr(targets, "text", lambda file: text(file).replace("half ^= 1;", ""))
    mutants = [mutant for mutant in job.mutants() if mutant.file == ROW]
    with pytest.raises(BuildError, match="row.cuh itself fails in norm_"):
        job.run(mutants, bench)


def test_sampled_mutants_are_noticed(bench):
    results = job.run(job.sample(job.mutants(), SAMPLE), bench)
    assert not job.complaints(results), "\n".join(job.complaints(results))
    print(job.table(results))


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import time\nwhile time.process_time() < 5: pass", ""),
        ("import time; time.sleep(1000)", "sleeps: has computed nothing for 2 s"),
    ],
    ids=["computes", "sleeps"],
)
def test_who_computes_for_long_does_not_sleep(program, said, tmp_path, monkeypatch):
    """Nothing of that depends on how much of a processor there is for it."""
    monkeypatch.setattr(bench_module, "WALL_SECONDS", 2)
    executable = tmp_path / "program"
    executable.write_text(f"#!{sys.executable}\n{program}\n")
    executable.chmod(0o755)
    assert _run(executable, "eager", 0, "") == ("timeout" if said else "", said, "")
