"""Mistakes that are planted in a kernel by hand: programs that have them, and what those print."""

import dataclasses
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from build_tools import compile, content, precompiled, results, settings, simulator
from build_tools.settings import ROOT
from tests.mutation import targets
from tests.mutation.bench import NUMBER, PRELUDE, Bench, Verdict
from tests.mutation.program import Program
from tests.tools.environment import environment

POLICIES = ("eager", "lazy", "random:1", "random:2", "random:3", "random:4")
TIMEOUT_SECONDS = 60  # a right program takes one
NOT_ENDED = f"has not ended after {TIMEOUT_SECONDS} s"
Header = tuple[tuple[str, ...], tuple[compile.Job, ...]]  # of build_tools.precompiled


@dataclass(frozen=True)
class Mistake:
    """What stands in a source, what stands there instead, and what the simulator says of it.

    Attributes:
        name: What is wrong, as an identifier.
        right: A text that the source has once.
        wrong: What is put there.
        found_as: A regular expression for a part of what is said.
        file: The source, as #include has it.
        program: The name of the program of the mutation tests that is to notice it; "": the first
            of the file's that does.
        test: The program's test that is to notice it, where others come first and take long; "":
            any. (One that is judged in a build of its own is left to all.)
    """

    name: str
    right: str
    wrong: str
    found_as: str
    file: str
    program: str = ""
    test: str = ""

    def applied(self) -> str:
        """The source with the mistake in it."""
        source = source_of(self.file)
        assert source.count(self.right) == 1, f"{self.name}: the kernel has changed"
        return source.replace(self.right, self.wrong)


def source_of(file: str) -> str:
    """The text of a source, as #include has it."""
    folder = "csrc/include" if file.startswith("kittens/") else "csrc"
    return (ROOT / folder / file).read_text()


def judge(bench: Bench, mistake: Mistake) -> Verdict:
    """What becomes of a mistake in the programs of the mutation tests."""
    return bench.judge_text(mistake.file, mistake.applied(), programs(mistake))


def programs(mistake: Mistake) -> tuple[Program, ...]:
    """Those of the mutation tests that are to notice it: one of them, those first that may."""
    of_file = targets.TARGETS[mistake.file]
    named = tuple(program for program in of_file if program.name == mistake.program)
    assert named or not mistake.program, f"{mistake.name}: {mistake.file} has no such program"
    return named or of_file


def check(verdict: Verdict, mistake: Mistake) -> None:
    """Asserts that it was noticed, for the right reason."""
    assert verdict.noticed, f"{mistake.name}: {verdict}"
    assert re.search(mistake.found_as, verdict.said), f"{mistake.name}: {verdict}"


def job(program: Path, *, race: bool = True) -> compile.Job:
    """The compilation of a program; a fast one, because there are many."""
    right = simulator.fast_kernel_job(simulator.headers(), program, race=race)
    return dataclasses.replace(right, name=f"{right.name}.planted")


def job_in(folder: Path, right: compile.Job, header: Header = ((), ())) -> compile.Job:
    """The compilation of a program with the sources of a folder in place of the right ones."""
    if (folder / "kittens").is_dir():
        header = ((), ())  # it has the right ones, as has the folder of kittens.cuh
        shutil.copy(ROOT / "csrc/include/kittens.cuh", folder)
    # No warnings: of what a mistake leaves unused.
    right = precompiled.begin_with(right, *header)
    command = (right.command[0], "-I", str(folder), *right.command[1:], "-w")
    return dataclasses.replace(right, name=f"{right.name}.{folder.name}", command=command)


def job_with(mistake: Mistake, right: compile.Job, header: Header = ((), ())) -> compile.Job:
    """The compilation of a program whose kernel has a mistake."""
    folder = settings.build_dir() / "mistakes" / mistake.name
    shutil.rmtree(folder, ignore_errors=True)  # the mistake may have been in another file
    write(folder / mistake.file, mistake.applied())
    return job_in(folder, right, header)


def write(path: Path, text: str) -> None:
    """Writes a file, and makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def build(program: Path, mistakes: tuple[Mistake, ...], *, race: bool = True) -> dict[str, Path]:
    """A program with each of the mistakes, by the names of these; "" is the one without."""
    right = job(program, race=race)
    prelude = job(ROOT / PRELUDE, race=race)
    header = precompiled.header(prelude) if len(mistakes) > 1 else ((), ())
    jobs = [right, *(job_with(mistake, right, header) for mistake in mistakes)]
    names = ["", *(mistake.name for mistake in mistakes)]
    return dict(zip(names, simulator.build_programs(jobs), strict=True))


def run(program: Path, policy: str, number: int = 0, test: str = "") -> str:
    """What a program prints up to what fails, or nothing: the same each time, so on one core.

    Args:
        program: Which.
        policy: The simulator's.
        number: Which of its mistakes it makes, if it has several (tests/tools/switched.py).
        test: Those of its tests whose names contain it.
    """
    words = (content.of_file(__file__), content.of_file(program), policy, str(number), test)
    key = content.of_words(*words)
    kept = results.read(key)
    if kept is None:
        kept = {"said": _said(program, policy, number, test)}
        if not kept["said"].startswith(NOT_ENDED):  # on a busy machine, another time it may
            results.write(key, kept)
    return kept["said"]


def _said(program: Path, policy: str, number: int, test: str) -> str:
    try:
        done = subprocess.run(
            [program, "--stop", "--filter", test],
            env=environment(KITTENS_SIM=f"{policy},threads=1,spin=1", **{NUMBER: str(number)}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return NOT_ENDED
    if done.returncode == 0:
        return ""
    return done.stdout + done.stderr + f"ends by signal {-done.returncode}" * (done.returncode < 0)


def run_until(program: Path, until: str, number: int = 0, test: str = "") -> dict[str, str]:
    """What it prints under each policy, up to the first where it prints `until`."""
    said: dict[str, str] = {}
    for policy in POLICIES:
        said[policy] = run(program, policy, number, test)
        if re.search(until, said[policy]):
            break
    return said
