"""Runs one case of a kernel family in the simulator: what `make sim KERNEL=attention` does.

    python -m tests.tools.simulate attention --rows 64 --keys 64 --causal --policy random:3

A family's case is the `Case` of tests/families/<family>/cases.py, each field of it an option here.
An op that another file of that folder, <…>_cases.py, has among its OPS has its case there.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import ModuleType

import torch

import configs
import thunderkittens
from tests.tools import families
from thunderkittens import _C, _backend

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "none": None}
ORDERS = "eager, lazy or random:SEED"
COLUMNS = ("instructions", "shared_bytes", "wavefronts", "conflicts", "global_bytes", "sectors")


def main(words: list[str]) -> int:
    """Runs a case and prints what came of it.

    Returns:
        0, if the numbers are right.
    """
    family = _family(words[0] if words else "")
    cases = _cases(family, words[0])
    options = _parse(family, cases, words[1:])
    fields = [field.name for field in dataclasses.fields(cases.Case)]
    given = {name: value for name, value in vars(options).items() if name in fields}
    if words[0] in getattr(cases, "OPS", ()):
        given = {"op": words[0], **given}
    case = dataclasses.replace(cases.EXAMPLE, **given)
    if options.library:
        _backend.SIMULATOR = Path(options.library)
    os.environ["THUNDERKITTENS_STRICT"] = "1"  # a fallback would run torch
    for file in filter(None, (options.trace, options.facts)):
        Path(file).unlink(missing_ok=True)
    print(f"{family} {case}: {options.policy}, inputs of seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        facts = Path(options.facts) if options.facts else Path(folder, "facts.json")
        scope = _scope(options, facts if options.facts is not None else None)
        status = _run(cases, case, scope, options.seed)
        if options.facts is not None and facts.is_file():
            print(describe(json.loads(facts.read_text())))
    if options.trace:
        where = f"{options.trace} (open it in ui.perfetto.dev or chrome://tracing)"
        print("timeline:", where if Path(options.trace).is_file() else "that block has not run")
    return status


def _family(name: str) -> str:
    for kernel in configs.KERNELS:
        if name in (kernel.name, *kernel.ops):
            return kernel.name
    known = ", ".join(kernel.name for kernel in configs.KERNELS)
    sys.exit(f"error: KERNEL must be one of {known}, got {name!r}")


def _cases(family: str, name: str) -> ModuleType:
    others = families.modules("*_cases.py").get(family, [])
    (first,) = families.modules("cases.py")[family]
    return next((cases for cases in others if name in getattr(cases, "OPS", ())), first)


def _parse(family: str, cases: ModuleType, words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"make sim KERNEL={family} ARGS=…",
        description=f"Runs one case of {family} in the simulator, and checks it against float64.",
        argument_default=argparse.SUPPRESS,
    )
    case = parser.add_argument_group("the case", f"by default {cases.EXAMPLE}")
    for field in dataclasses.fields(cases.Case):
        case.add_argument(f"--{field.name.replace('_', '-')}", dest=field.name, **_option(field))
    run = parser.add_argument_group("the run")
    run.add_argument("--policy", default="eager", metavar="ORDER", help=ORDERS)
    run.add_argument("--seed", type=int, default=0, help="of the inputs")
    run.add_argument("--threads", type=int, default=None, help="cores to run on (default: all)")
    run.add_argument("--trace", metavar="FILE", default=None, help="writes a block's timeline")
    run.add_argument("--block", type=int, default=None, help="the block of --trace (default: 0)")
    run.add_argument(
        "--facts",
        metavar="FILE",
        nargs="?",
        const="",
        default=None,
        help="prints instructions, bytes and bank conflicts; FILE keeps them, as JSON",
    )
    run.add_argument("--library", default=None, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def _option(field: dataclasses.Field) -> dict:
    """How argparse reads a field of a case."""
    if field.type is bool:
        return {"action": argparse.BooleanOptionalAction}
    if field.type in (torch.dtype, torch.dtype | None):
        return {"type": _dtype, "metavar": "{" + ",".join(DTYPES) + "}"}
    if field.type == tuple[int, ...]:
        return {"type": lambda text: tuple(map(int, text.split(","))), "metavar": "N,N,…"}
    number = {int: int, float: float, int | None: int, float | None: float}.get(field.type)
    return {"type": number, "metavar": "N"} if number else {"metavar": "NAME"}


def _dtype(text: str) -> torch.dtype | None:
    if text not in DTYPES:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(DTYPES)}, got {text!r}")
    return DTYPES[text]


def _scope(options: argparse.Namespace, facts: Path | None) -> thunderkittens.backend:
    policy, _, seed = options.policy.partition(":")
    try:
        return thunderkittens.backend(
            "simulator",
            policy=policy,
            seed=int(seed) if seed else None,
            threads=options.threads,
            trace=options.trace,
            block=options.block,
            facts=facts,
        )
    except ValueError as error:
        sys.exit(f"error: {error}")


def _run(cases: ModuleType, case, scope: thunderkittens.backend, seed: int) -> int:
    torch.manual_seed(seed)
    inputs = cases.make(case)
    before, start = _C.launch_counts(), time.monotonic()
    try:
        with scope:
            start = time.monotonic()
            results = cases.run_case(case, inputs)
    except (RuntimeError, TypeError, ValueError) as report:  # also of a call that is refused
        print(f"{time.monotonic() - start:.2f} s, then:\n{report}")
        return 1
    seconds = time.monotonic() - start
    launches = {op: n - before.get(op, 0) for op, n in _C.launch_counts().items()}
    print(f"{seconds:.2f} s:", ", ".join(f"{op} × {n}" for op, n in launches.items() if n))
    try:
        cases.check_case(case, inputs, results)
    except AssertionError as error:
        print(f"wrong numbers: {error}")
        return 1
    print("right: each element is within its bound from float64, and nothing was reported")
    return 0


def describe(facts: dict) -> str:
    """Facts as a text: per launch, then per line of its kernel."""
    return "\n".join(_describe_launch(launch) for launch in facts["launches"])


def _describe_launch(launch: dict) -> str:
    total = _amounts(launch["total"])
    counts = sorted(launch["instructions"].items(), key=lambda item: -item[1])
    grid = " × ".join(map(str, launch["grid"]))
    lines = [
        "",
        f"{launch['kernel']}: {grid} blocks of {launch['threads']} threads, "
        f"{launch['shared_memory']} bytes of shared memory each",
        "  instructions: " + ", ".join(f"{name} {count}" for name, count in counts),
        f"  shared memory: {total['shared_bytes']} bytes; threads' accesses take "
        f"{total['wavefronts']} wavefronts, {total['conflicts']} of them for bank conflicts",
        f"  global memory: {total['global_bytes']} bytes; threads' accesses touch "
        f"{total['sectors']} sectors of 32 bytes",
        f"  tensor cores: {total['flops']} FLOP",
    ]
    cells = [("", "", *(name.replace("_", " ") for name in COLUMNS))]
    for (file, line, name), amounts in sorted(_by_line(launch["lines"]).items()):
        cells.append((f"{file}:{line}", name, *(str(amounts[c] or "") for c in COLUMNS)))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        pairs = list(zip(row, widths, strict=True))
        texts = [f"{text:<{width}}" for text, width in pairs[:2]]
        lines.append("  " + "  ".join(texts + [f"{text:>{width}}" for text, width in pairs[2:]]))
    return "\n".join(lines)


def _by_line(places: list[dict]) -> dict[tuple[str, int, str], Counter]:
    """Sums over the lines of the library that a kernel's line comes through."""
    found: dict[tuple[str, int, str], Counter] = {}
    for place in places:
        file, line = place["line"].split(" (")[0].rsplit(":", 1)
        found.setdefault((file, int(line), place["name"]), Counter()).update(_amounts(place))
    return found


def _amounts(found: dict) -> dict[str, int]:
    amounts = {name: found.get(name, 0) for name in (*COLUMNS, "passes", "flops")}
    return amounts | {"conflicts": amounts["wavefronts"] - amounts["passes"]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
