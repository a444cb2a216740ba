"""Builds mutants and runs them in race mode under the simulator's policies, until one notices.

What does not depend on the mutant is built once: the simulator, the checks, and a precompiled
header. A verdict is kept under a hash of everything that it depends on, so what has not changed
since the last run costs nothing.
"""

import contextlib
import dataclasses
import functools
import re
import resource
import signal
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from build_tools import compile, content, cxx, precompiled, results, settings, simulator, toolchain
from build_tools.settings import ROOT
from tests.mutation.program import Program
from tests.tools.environment import environment

FOLDER = Path("tests/mutation")  # of the headers that the programs of all families share
PRELUDE = FOLDER / "prelude.hpp"

POLICIES = ("random:1", "eager", "lazy", "random:2", "random:3")  # the first notices the most
OPTIONS = "race,threads=1,spin=1"
CPU_SECONDS = 20  # a right program takes 0.5 s, or 2; attention's generic backward more than 10
WALL_SECONDS = 60  # that one who sleeps has, and computes nothing; processors may be shared
MEMORY_BYTES = 2 << 30
# No warnings; an element that an array of the kernel does not have ends the program. (The strict
# check, g++'s alone, takes an array at a structure's end for what it is.)
MUTANT_FLAGS = ("-w", "-fsanitize-undefined-trap-on-error")
# For those that nothing else notices: it takes the compiler half as long again.
LAST_FLAGS = ("-fsanitize=object-size",)
# How a mutant is built, and under which policies it then runs, one after the other until it is
# noticed; and a kernel as it is, which nothing may notice.
MUTANT_RUNS = (((), POLICIES), (LAST_FLAGS, POLICIES[:1]))
RIGHT_RUNS = ((LAST_FLAGS, POLICIES),)
Runs = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
NUMBER = "PLANTED_MISTAKE"  # in the environment: of the mistake that is made, of several
NOTICED = ("report", "numbers", "crash", "timeout")


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        outcome: One of NOTICED, "survived", or "compile" where it is no program.
        where: The program and the policy that noticed it, or "".
        said: What that one printed.
        test: The program's test that noticed it; "" where it has not said which.
    """

    outcome: str
    where: str = ""
    said: str = ""
    test: str = ""

    @property
    def noticed(self) -> bool:
        """Whether it was killed."""
        return self.outcome in NOTICED


SURVIVED = Verdict("survived")


class Bench:
    """Judges mutants with the given programs.

    Args:
        programs: Which.
        level: How much their kernels are optimised. As the simulator's libraries are, they compile
            in less than half the time; the lists of what cannot be noticed are about -O1.
    """

    def __init__(self, programs: list[Program], level: tuple[str, ...] = ("-O1",)) -> None:
        toolkit = simulator.headers()
        self._level = level
        self._kernels = {p: _job(toolkit, p.kernel, p, level) for p in programs}
        self._checks = {p: _job(toolkit, p.check, p) for p in programs}
        self._locks = {job: threading.Lock() for job in self._checks.values()}
        parts = [*cxx.host_jobs(), *simulator.jobs()]
        self._library = [result.output for result in compile.run(parts, "Simulator")]
        self._compiler = toolchain.find_compiler()
        self._once = threading.Lock()

    def judge_all(self, work: list[tuple[str, str, tuple[Program, ...]]]) -> list[Verdict]:
        """As judge_text, many of them, in order; as many at a time as the machine can."""
        verdicts = []
        checks = dict.fromkeys(self._checks[program] for one in work for program in one[2])
        compile.run(checks, "Cases of the mutants")
        with ThreadPoolExecutor(settings.jobs()) as pool:
            for verdict in pool.map(lambda one: self.judge_text(*one), work):
                verdicts.append(verdict)
                if len(verdicts) % 50 == 0:
                    print(f"  [{len(verdicts)}/{len(work)}]", flush=True)
        return verdicts

    def judge_text(self, file: str, text: str, programs: tuple[Program, ...]) -> Verdict:
        """The verdict on a source with the text that it is to have."""
        family = str(Path("csrc", file).parent)
        if text == (ROOT / "csrc" / file).read_text():  # each program knows it: once for all files
            verdicts = (
                self._judge([self.world(p, family)], file, text, (p,), RIGHT_RUNS) for p in programs
            )
            return next((one for one in verdicts if one != SURVIVED), SURVIVED)
        world = [self.world(program, family) for program in programs]
        return self._judge([file, text, *world], file, text, programs, MUTANT_RUNS)

    def _judge(
        self, parts: list[str], file: str, text: str, programs: tuple[Program, ...], runs: Runs
    ) -> Verdict:
        """The verdict that is kept under a hash of `parts`, or a new one."""
        key = content.of_words(*parts)
        kept = results.read(key)
        if kept is not None:
            return Verdict(**kept)
        scratch = settings.build_dir() / "mutation"
        scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            changed = Path(folder, file)
            changed.parent.mkdir(parents=True)
            changed.write_text(text)
            verdict = self._try(Path(folder), programs, runs)
        results.write(key, dataclasses.asdict(verdict))
        return verdict

    def _try(self, folder: Path, programs: tuple[Program, ...], runs: Runs) -> Verdict:
        executable = folder / "program"
        for flags, policies in runs:
            for program in programs:
                said = self.build(folder, program, executable, flags)
                if said:
                    return Verdict("compile", program.name, said)
                verdict = self.run(executable, program, policies)
                if verdict != SURVIVED:
                    return verdict
        return SURVIVED

    def build(
        self, folder: Path, program: Program, executable: Path, flags: tuple[str, ...] = ()
    ) -> str:
        """Builds a program with the sources of a folder in place of those that there are.

        What is compiled lies in the folder for other programs of the same kernel.

        Returns:
            The compiler's first error, or nothing.
        """
        output = folder / "".join((program.object, *flags, ".o"))
        compiler, *arguments = self._kernels[program].command
        with self._once:
            prelude = self._prelude
        command = [compiler, "-I", str(folder), *prelude, *arguments, *flags]
        command = [argument.replace("{output}", str(output)) for argument in command]
        link = [compiler, "-o", executable, output, self._check(program), *self._library]
        for one in ([] if output.is_file() else [command]) + [[*link, "-lpthread"]]:
            done = subprocess.run(one, cwd=ROOT, capture_output=True, text=True, errors="replace")
            if done.returncode != 0:
                return next((s for s in done.stderr.splitlines() if "error:" in s), done.stderr)
        return ""

    def run(
        self,
        executable: Path,
        program: Program,
        policies: tuple[str, ...],
        number: int = 0,
        tests: str = "",
    ) -> Verdict:
        """What the first of some policies that notices something says.

        Args:
            executable: The program.
            program: Its name.
            policies: Which.
            number: Of the mistake that it makes, if it has several; 0: none of them.
            tests: Those of its tests whose names contain it.
        """
        for policy in policies:
            outcome, said, test = _run(executable, policy, number, tests)
            if outcome:
                return Verdict(outcome, f"{program.name}, {policy}", said, test)
        return SURVIVED

    def _check(self, program: Program) -> Path:
        """The object of a program's check: built once it is asked for, if it is."""
        job = self._checks[program]
        with self._locks[job]:
            (built,) = compile.run([job], "Cases of the mutants")
        return built.output

    @functools.cached_property
    def _prelude(self) -> tuple[str, ...]:
        """The flags that begin with the prelude, precompiled where only g++ could."""
        flags, needs = precompiled.header(_job(simulator.headers(), PRELUDE, level=self._level))
        compile.run(needs, "Header of the mutants")
        return flags

    @functools.cache  # noqa: B019 (a bench lives as long as the job)
    def world(self, program: Program, family: str) -> str:
        """A hash of all that a program's verdict depends on but for the mutant."""
        words = (self._compiler.name, *POLICIES, OPTIONS, str(CPU_SECONDS), *LAST_FLAGS)
        kernel = ROOT / program.kernel
        trees = ("csrc/include/**/*.*h*", "csrc/sim/**/*.h*", f"{family}/*.h", f"{family}/*.cuh")
        headers = [path for tree in trees for path in sorted(ROOT.glob(tree))]
        included = re.findall(r'^#include "(\w+\.h)"$', kernel.read_text(), re.MULTILINE)
        headers += [ROOT / PRELUDE, *(kernel.with_name(name) for name in included)]
        files = (Path(__file__), *headers, kernel, *self._library, self._check(program))
        words = (*words, content.processor())  # for those that do not end
        command = content.names(ROOT).command(self._kernels[program].command)
        return content.of_words(*words, *command, *(content.of_file(path) for path in files))


def _job(
    toolkit: toolchain.Cuda,
    source: Path,
    program: Program | None = None,
    level: tuple[str, ...] = ("-O1",),
) -> compile.Job:
    """A compilation like those of the simulator; a kernel's is fast, because there are hundreds."""
    is_kernel = program is None or source != program.check
    defines = program.defines if program else ()
    job = simulator.kernel_job(toolkit, ROOT / source, race=is_kernel)
    if is_kernel:
        job = simulator.at_level(job, level)
    compiler, *arguments = job.command
    if is_kernel:
        strict = "-strict" if toolchain.find_compiler().name.startswith("g++") else ""
        arguments += [*MUTANT_FLAGS, f"-fsanitize=bounds{strict}"]
        defines = (*defines, *program.forms) if program else ()
    command = (compiler, "-I", str(FOLDER), *(f"-D{define}" for define in defines), *arguments)
    name = ".".join((job.name, *defines, *(level[:1] if is_kernel else [])))
    return dataclasses.replace(job, name=name, command=command)


def _output(process: subprocess.Popen) -> str | None:
    """What a process has written once it has ended; None of one that sleeps, and is ended.

    One that computes, however seldom it gets a processor, is ended by its limit of computing.
    """
    used = -1
    while True:
        try:
            return process.communicate(timeout=WALL_SECONDS)[0]
        except subprocess.TimeoutExpired:
            before, used = used, _computed(process.pid)
            if used == before:
                process.kill()
                process.communicate()
                return None


def _computed(pid: int) -> int:
    """For how many nanoseconds a process's threads have had a processor."""
    used = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # it has just ended
            used += int(file.read_text().split()[0])
    return used


def _run(executable: Path, policy: str, number: int, tests: str) -> tuple[str, str, str]:
    """Runs a program; returns how it noticed a mistake, what it said, and by which of its tests."""
    process = subprocess.Popen(
        [executable, "--stop", "--filter", tests],
        env=environment(KITTENS_SIM=f"{policy},{OPTIONS}", **{NUMBER: str(number)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    text = _output(process)
    if text is None:
        return "timeout", f"sleeps: has computed nothing for {WALL_SECONDS} s", ""
    if process.returncode == 0:
        return "", "", ""
    if process.returncode == -signal.SIGXCPU:
        return "timeout", f"has not ended after {CPU_SECONDS} s of computing", ""
    failed = re.search(r"^FAILED (\w+)$", text, re.MULTILINE)
    test, thrown = failed[1] if failed else "", re.search(r" throws (.*)", text)
    if thrown:
        return "report", thrown[1], test
    if process.returncode < 0:
        return "crash", f"ends by signal {-process.returncode}", test
    return "numbers", next((line for line in text.splitlines() if ":" in line), "").strip(), test
