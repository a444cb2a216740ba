"""`make mutation`: judges every mutant; prints the table, the score, and what needs a look.

Fails where one survives that is not listed, or one is noticed that is.
"""

import argparse
import sys
import time

from build_tools.settings import BuildError
from tests.mutation import job, listed


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutation ARGS=…", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="those whose text contains it")
    parser.add_argument("--sample", type=int, metavar="N", help="this many of them")
    parser.add_argument("--unlisted", action="store_true", help="leave out those that are listed")
    parser.add_argument("--list", action="store_true", help="print them, and run none")
    parser.add_argument("--all", action="store_true", help="print what became of each one")
    options = parser.parse_args()
    chosen = [mutant for mutant in job.mutants() if options.only in str(mutant)]
    if options.unlisted:
        chosen = [mutant for mutant in chosen if listed.find(mutant) is None]
    if options.sample is not None:
        chosen = job.sample(chosen, options.sample)
    if options.list:
        for mutant in chosen:
            entry = listed.find(mutant)
            print(f"{mutant}{f'  [listed: {entry.reason}]' if entry else ''}")
        return 0
    print(f"{len(chosen)} mutants", flush=True)
    start = time.monotonic()
    results = job.run(chosen)
    if options.all:
        for result in results:
            verdict = result.verdict
            print(f"{result.column:10} {result.mutant}  [{verdict.where}: {verdict.said[:120]}]")
    complaints = job.complaints(results)
    print("\n".join([*complaints, job.table(results)]))
    print(f"{len(results)} mutants in {time.monotonic() - start:.0f} s")
    return int(bool(complaints))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BuildError as error:
        sys.exit(f"error: {error}")
