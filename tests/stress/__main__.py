"""`python -m tests.stress`: repeats kernels with asynchronous copies on a GPU, a line a problem.

Fails where a bit differs from the first run's, or a value from float64 by more than rounding.
"""

import argparse
import os
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="those whose name contains it")
    parser.add_argument("--repeats", type=int, default=1000, help="alone, and beside noise")
    parser.add_argument("--seconds", type=float, default=300, help="of repeats of all, about")
    parser.add_argument("--list", action="store_true", help="print them, and run none")
    parser.add_argument("--package", type=Path, metavar="FOLDER", help="that holds thunderkittens")
    parser.add_argument("--must-fail", action="store_true", help="succeed where bits differ")
    options = parser.parse_args()
    if options.package is not None:
        if not (options.package / "thunderkittens").is_dir():
            sys.exit(f"error: --package: found no thunderkittens in {options.package}")
        sys.path.insert(0, str(options.package.resolve()))
    os.environ["THUNDERKITTENS_STRICT"] = "1"  # a fallback would test torch

    import torch  # not before it is known which package is loaded

    import thunderkittens
    from tests.stress.cases import CASES
    from tests.stress.repeat import stress

    chosen = [each for each in CASES if options.only in str(each)]
    if not chosen:
        sys.exit(f"error: --only: no problem's name contains {options.only!r}; --list names them")
    if options.list:
        print(*chosen, sep="\n")
        return 0
    if not torch.cuda.is_available():
        sys.exit("error: found no GPU that torch can use, needed to repeat kernels on it")
    print(f"{thunderkittens.__file__} on {torch.cuda.get_device_name()}", flush=True)
    outcomes = []
    for each in chosen:
        outcomes.append(stress(each, options.repeats, options.seconds / len(chosen)))
        print(outcomes[-1], flush=True)
        torch.cuda.empty_cache()
    bad = sum(not outcome.good for outcome in outcomes)
    differing = sum(outcome.alone_differ + outcome.beside_differ for outcome in outcomes)
    runs = sum(outcome.alone + outcome.beside for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    print(f"{bad} of {len(outcomes)} bad; {differing} of {runs} runs differ; {seconds:.0f} s")
    return int(differing == 0 if options.must_fail else bad > 0)


if __name__ == "__main__":
    sys.exit(main())
