"""The reports that docs/simulator.md quotes: of mistakes planted in the attention kernel.

`python -m tests.families.attention.quoted_reports` runs them again and writes what they print into
the manual.
"""

import re
import sys

from build_tools.settings import ROOT
from tests.families.attention.mistakes import MISTAKES, WINDOWED
from tests.tools import planted
from tests.tools.planted import Mistake

PROGRAM = ROOT / "tests/families/attention/programs/attention_case.cu"

MANUAL = ROOT / "docs/simulator.md"
QUOTE = re.compile(r"(<!-- report: (\w+) (\S+) -->\n```text\n)(.*?)(```\n)", re.S)


def quotes() -> list[tuple[Mistake, str, str]]:
    """The mistakes that the manual quotes, the policy of each, and the quoted text."""
    by_name = {mistake.name: mistake for mistake in MISTAKES}
    found = QUOTE.findall(MANUAL.read_text())
    return [(by_name[name], policy, text) for _, name, policy, text, _ in found]


def report(mistake: Mistake, policy: str) -> str:
    """What a test of attention_case.cu prints under a policy, of a kernel with the mistake."""
    program = planted.build(PROGRAM, (mistake,), race=False)[mistake.name]
    return of_the_first(planted.run(program, policy, test=WINDOWED))


def of_the_first(printed: str) -> str:
    """The report of the first case that fails, without the harness's own words."""
    printed = re.sub(r"^ *\S+: throws ", "", printed, flags=re.M)
    return re.sub(r"^ok .*\n", "", printed, flags=re.M).partition("FAILED")[0]  # the first one


def main() -> None:
    """Regenerates the manual's quotes."""
    by_name = {mistake.name: mistake for mistake in MISTAKES}
    renewed = QUOTE.sub(
        lambda m: m[1] + report(by_name[m[2]], m[3]) + m[5],
        MANUAL.read_text(),
    )
    MANUAL.write_text(renewed)
    print(MANUAL)


if __name__ == "__main__":
    sys.exit(main())
