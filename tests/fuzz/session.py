"""Many cases in one or several processes, and what they add up to."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import multiprocessing
import multiprocessing.connection
import time
import warnings
from multiprocessing.connection import Connection

import torch

from tests.fuzz.run import Runner, Setting

PATIENCE = 300.0  # seconds without a word from a process
# Cases of a process in the simulator, which keeps the stacks of its threads: with their guard pages
# they would come near what the system grants a process in mappings.
RENEWED = 1500


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which cases: each op of `ops` with seed `start`, then with the next one, and so on."""

    setting: Setting
    ops: tuple[str, ...]
    start: int = 0
    cases: int | None = None
    control: bool = False

    def numbered(self, first: int, step: int):
        """Cases number first, first + step, … as (number, op, seed)."""
        for number in itertools.count(first, step):
            if self.cases is not None and number >= self.cases:
                return
            seed, which = divmod(number, len(self.ops))
            yield number, self.ops[which], self.start + seed


@dataclasses.dataclass
class Tally:
    """What has been found."""

    cases: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failed: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    spoilt_of: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    noticed_of: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    seconds: float = 0.0

    total = property(lambda self: self.cases.total())
    failures = property(lambda self: self.failed.total())
    spoilt = property(lambda self: self.spoilt_of.total())
    noticed = property(lambda self: self.noticed_of.total())

    def count(self, op: str, failed: bool, noticed: bool | None) -> None:
        self.cases[op] += 1
        self.failed[op] += failed
        if noticed is not None:
            self.spoilt_of[op] += 1
            self.noticed_of[op] += noticed

    def summary(self) -> str:
        """A line for each op, then one for all of them."""
        lines = [self._line(op, self.cases[op]) for op in sorted(self.cases)]
        each = f"{self.seconds:.0f} s, {self.total / max(self.seconds, 1e-9):.1f} cases/s"
        return "\n".join([*lines, f"{self._line('all', self.total)}; {each}"])

    def _line(self, op: str, cases: int) -> str:
        every = op == "all"
        failed = self.failures if every else self.failed[op]
        spoilt = self.spoilt if every else self.spoilt_of[op]
        noticed = self.noticed if every else self.noticed_of[op]
        text = f"{op}: {cases} cases, {failed} failed"
        return text + (
            f", control {noticed} of {spoilt} ({noticed / spoilt:.1%})" if spoilt else ""
        )


def line(setting: Setting, op: str, seed: int, failure: str) -> str:
    """What is printed of a failure, with the command that repeats it."""
    command = f"python -m tests.fuzz --case {op}:{seed} {setting.options}"
    return f"FAILED {op}:{seed}: {failure}; {command}"


def prepare(setting: Setting) -> None:
    """Torch as it is for every case."""
    warnings.simplefilter("ignore")  # of operations without a deterministic form, of fallbacks
    # Parts of sums that products round to 16 bits are no roundings of the ops.
    products = torch.backends.cuda.matmul
    products.allow_fp16_reduced_precision_reduction = False
    products.allow_bf16_reduced_precision_reduction = False
    products.allow_tf32 = False
    if setting.device == "cpu":
        torch.set_num_threads(1)  # the tensors are small


def run(plan: Plan, seconds: float, jobs: int) -> Tally:
    """Runs the plan until its cases or the seconds are over."""
    tally, began = Tally(), time.monotonic()
    if jobs == 1 and plan.setting.backend != "simulator":
        _run_here(plan, began + seconds, tally)
    else:
        _run_apart(plan, began + seconds, jobs, tally)
    tally.seconds = time.monotonic() - began
    return tally


def _run_here(plan: Plan, end: float, tally: Tally) -> None:
    prepare(plan.setting)
    runner = Runner(plan.setting, plan.control)
    for _, op, seed in plan.numbered(0, 1):
        if time.monotonic() >= end:
            return
        outcome = runner.run(op, seed)
        _record(plan, tally, op, seed, outcome.failures, outcome.noticed)


def _record(
    plan: Plan, tally: Tally, op: str, seed: int, failures: list[str], noticed: bool | None
) -> None:
    tally.count(op, bool(failures), noticed)
    if failures:
        print(line(plan.setting, op, seed, "; ".join(failures)), flush=True)


# ---- Several processes --------------------------------------------------------------------------


def _work(plan: Plan, first: int, step: int, end: float, out: Connection) -> None:
    """A process: cases first, first + step, …; says which one it begins, and what became of it."""
    prepare(plan.setting)
    torch.set_num_threads(1)
    if plan.setting.device == "cuda":  # what torch keeps for later is missing to the others
        torch.cuda.set_per_process_memory_fraction(0.9 / step)
    runner = Runner(plan.setting, plan.control)
    last = first + step * RENEWED if plan.setting.backend == "simulator" else None
    for number, op, seed in plan.numbered(first, step):
        if time.time() >= end:
            break
        if number == last:
            return out.send(Renewal(number))
        out.send(number)
        outcome = runner.run(op, seed)
        out.send((op, seed, outcome.failures, outcome.noticed))
        if outcome.failures and plan.setting.device == "cuda":
            torch.cuda.synchronize()  # raises where the context is lost: another process goes on
    out.send(None)


@dataclasses.dataclass(frozen=True)
class Renewal:
    """A process has done its part: another one goes on with this case."""

    number: int


@dataclasses.dataclass
class _Worker:
    """A process, what it has said, and the case that it has begun."""

    process: multiprocessing.process.BaseProcess
    number: int | None
    heard: float = dataclasses.field(default_factory=time.monotonic)


def _run_apart(plan: Plan, end: float, jobs: int, tally: Tally) -> None:
    context = multiprocessing.get_context("spawn")
    clock = time.time() + end - time.monotonic()
    workers: dict[Connection, _Worker] = {}

    def begin(first: int) -> None:
        mine, theirs = context.Pipe(duplex=False)
        arguments = (plan, first, jobs, clock, theirs)
        process = context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        theirs.close()  # so that the pipe ends with the process
        workers[mine] = _Worker(process, first)

    for lane in range(jobs):
        begin(lane)
    while workers:
        for worker in workers.values():
            if time.monotonic() - worker.heard > PATIENCE:
                worker.process.kill()
        for pipe in multiprocessing.connection.wait(list(workers), timeout=5.0):
            workers[pipe].heard = time.monotonic()
            try:
                said = pipe.recv()
            except EOFError:
                worker = workers.pop(pipe)
                worker.process.join()
                if worker.number is not None:
                    _report_death(plan, tally, worker)
                    if time.time() < clock:
                        begin(worker.number + jobs)
                continue
            if isinstance(said, tuple):
                _record(plan, tally, *said)
            elif isinstance(said, Renewal):
                workers[pipe].number = None
                begin(said.number)
            else:
                workers[pipe].number = said


def _report_death(plan: Plan, tally: Tally, worker: _Worker) -> None:
    seed, which = divmod(worker.number, len(plan.ops))
    code = worker.process.exitcode
    words = [f"its process ended with code {code}: a fault, a hang, or a lost context of the GPU"]
    _record(plan, tally, plan.ops[which], plan.start + seed, words, None)
