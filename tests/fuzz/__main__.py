"""The command: runs seeds for some seconds, prints a line for each failure, and a summary."""

import argparse
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # the same bits from torch's products

import torch

from tests.fuzz import case, session
from tests.fuzz.run import Runner, Setting

NOTICED = 0.9  # of the spoilt elements


def main(words: list[str] | None = None) -> int:
    options = parse(words)
    setting = Setting(options.device, options.backend, options.race, options.generic, options.large)
    if options.case:
        return repeat(setting, *options.case, options.control)
    chosen = options.only or sorted(case.ops())
    plan = session.Plan(setting, tuple(chosen), options.start, options.cases, options.control)
    tally = session.run(plan, options.seconds, options.jobs)
    print(tally.summary())
    missed = options.control and tally.noticed < NOTICED * tally.spoilt
    return int(bool(tally.failures) or missed or tally.total == 0)


def parse(words: list[str] | None) -> argparse.Namespace:
    known = case.ops()
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Public ops on random calls, against float64."
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on (60)")
    parser.add_argument("--cases", type=int, help="stop after this many cases")
    parser.add_argument("--start", type=int, default=0, metavar="SEED", help="the first seed (0)")
    parser.add_argument("--only", type=names(known), metavar="OPS", help="ops, comma-separated")
    parser.add_argument("--case", type=one(known), metavar="OP:SEED", help="run this one, and tell")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument(
        "--backend", choices=("auto", "torch", "simulator"), default="auto", help="(auto)"
    )
    parser.add_argument("--race", action="store_true", help="the simulator's race mode")
    parser.add_argument("--generic", action="store_true", help="of two kernels the generic one")
    parser.add_argument("--large", action="store_true", help="a GPU's cases, on a CPU too")
    parser.add_argument("--control", action="store_true", help="spoil results: is it noticed?")
    parser.add_argument("--jobs", type=int, help="processes (cpu: 1, cuda: half of the cores, ≤ 8)")
    options = parser.parse_args(words)
    if options.device is None:
        simulated = options.backend == "simulator"
        options.device = "cuda" if torch.cuda.is_available() and not simulated else "cpu"
    if options.backend == "simulator" and options.device == "cuda":
        parser.error("the simulator takes tensors on the CPU: --device cpu")
    if options.race and options.backend != "simulator":
        parser.error("--race is a mode of the simulator: --backend simulator")
    if options.generic and options.backend == "torch":
        parser.error("--generic chooses between kernels: --backend auto or simulator")
    if options.jobs is None:
        options.jobs = 1 if options.device == "cpu" else min(8, max(1, (os.cpu_count() or 2) // 2))
    return options


def names(known: dict[str, object]):
    def read(text: str) -> list[str]:
        wrong = [op for op in text.split(",") if op not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"no op {wrong[0]!r}; there are {', '.join(known)}")
        return text.split(",")

    return read


def one(known: dict[str, object]):
    def read(text: str) -> tuple[str, int]:
        op, _, seed = text.partition(":")
        if op not in known or not seed.isdecimal():
            raise argparse.ArgumentTypeError(f"must be OP:SEED, got {text!r}")
        return op, int(seed)

    return read


def repeat(setting: Setting, op: str, seed: int, control: bool) -> int:
    """One case, in words."""
    session.prepare(setting)
    outcome = Runner(setting, control).run(op, seed)
    for failure in outcome.failures:
        print(session.line(setting, op, seed, failure))
    if control:
        print(f"one spoilt element: noticed: {outcome.noticed}")
    if not outcome.failures:
        print(f"{op}:{seed} is right")
    return int(bool(outcome.failures))


if __name__ == "__main__":
    sys.exit(main())
