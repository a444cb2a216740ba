"""The command line: choose families, measure, print, record, plot."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks import bench_classic, harness, records
from benchmarks.report import draw, machine, print_result
from thunderkittens.testing.timing import free_cached_memory


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Arguments of `python -m benchmarks`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("families", nargs="*", help="which to run (default: all)")
    parser.add_argument("--list", action="store_true", help="print the families and stop")
    parser.add_argument("--quick", action="store_true", help="a few shapes of each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the figures there")
    parser.add_argument(
        "--record",
        action="store_true",
        help="write benchmarks/records/<gpu>/<family>.json, which RESULTS.md is generated from",
    )
    parser.add_argument(
        "--library",
        type=Path,
        metavar="FILE",
        help="of `classic`: what `python -m benchmarks.classic_library` has built",
    )
    parser.add_argument("--commit", help="what to call the code, where it is no git checkout")
    return parser.parse_args(argv)


def run(family: str, timer: harness.Timer, quick: bool) -> list[harness.Result]:
    """Every result of one family, printed as it comes."""
    module = harness.load(family)
    if hasattr(module, "measure"):
        results = module.measure(timer, quick)
    else:
        results = (harness.measure(case, timer) for case in module.cases(quick))
    done = []
    for result in results:
        done.append(result)
        print_result(result)
        free_cached_memory()
    return done


def main(argv: list[str] | None = None) -> int:
    """0: measured; 1: a result was wrong; 2: cannot run (said in one sentence)."""
    arguments = parse(argv)
    known = harness.families()
    if arguments.list:
        print("\n".join(known))
        return 0
    unknown = [family for family in arguments.families if family not in known]
    if unknown:
        print(f"benchmarks: no family {unknown[0]!r}; there are {', '.join(known)}.")
        return 2
    if not torch.cuda.is_available():
        print("benchmarks: nothing to measure, this machine has no GPU that torch can use.")
        return 2
    from thunderkittens.testing import timing

    bench_classic.library = arguments.library
    record: dict[str, Any] = {"machine": machine(arguments.commit), "results": {}}
    for family in arguments.families or known:
        try:
            results = run(family, timing, arguments.quick)
        except harness.MissingPeer as problem:
            print(f"benchmarks: {family} left out: {problem}.", file=sys.stderr)
            if family in arguments.families:
                return 2
            continue
        except harness.WrongResult as problem:
            print(f"benchmarks: wrong result, nothing recorded: {problem}.", file=sys.stderr)
            return 1
        record["results"][family] = [result.to_json() for result in results]
    save(record, arguments)
    return 0


def save(record: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Writes the files that were asked for."""
    written = records.save(records.of_run(record)) if arguments.record else []
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        written.append(arguments.json)
    for path in written:
        print(f"wrote {path}")
    if arguments.plot and importlib.util.find_spec("matplotlib") is None:
        print("no plot: matplotlib is not installed")
    elif arguments.plot:
        draw(record, arguments.plot)
        print(f"wrote {arguments.plot}")
    if arguments.record:
        subprocess.run([sys.executable, "-m", "benchmarks.results"], check=True)
