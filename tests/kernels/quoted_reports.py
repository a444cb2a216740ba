"""The reports that docs/simulator.md quotes: of mistakes planted in the attention kernel.

`python -m tests.kernels.quoted_reports` runs them again and writes what they print into the manual.
"""

import dataclasses
import re
import sys

from build_tools import settings, simulator
from build_tools.settings import ROOT
from tests.kernels.test_attention_mistakes import KERNEL, MISTAKES, PROGRAM, Mistake, run

MANUAL = ROOT / "docs/simulator.md"
QUOTE = re.compile(r"(<!-- report: (\w+) (\S+) -->\n```text\n)(.*?)(```\n)", re.S)


def quotes() -> list[tuple[Mistake, str, str]]:
    """The mistakes that the manual quotes, the policy of each, and the quoted text."""
    by_name = {mistake.name: mistake for mistake in MISTAKES}
    found = QUOTE.findall(MANUAL.read_text())
    return [(by_name[name], policy, text) for _, name, policy, text, _ in found]


def report(mistake: Mistake, policy: str) -> str:
    """What attention_case.cu prints under a policy with a kernel that has the mistake."""
    job = simulator.kernel_job(simulator.headers(), PROGRAM)
    source = (ROOT / "csrc" / KERNEL).read_text()
    changed = settings.build_dir() / "mistakes" / mistake.name / KERNEL
    changed.parent.mkdir(parents=True, exist_ok=True)
    changed.write_text(source.replace(mistake.right, mistake.wrong))
    command = (job.command[0], "-I", str(changed.parents[2]), *job.command[1:])
    job = dataclasses.replace(job, name=f"{job.name}.{mistake.name}", command=command)
    (program,) = simulator.build_programs([job])
    printed = run(program, policy)
    printed = re.sub(r"^ *\S+: throws ", "", printed)  # the harness's own words
    return re.sub(r"^(FAILED|\d+ passed).*\n", "", printed, flags=re.M)


def main() -> None:
    """Writes the manual's quotes anew."""
    by_name = {mistake.name: mistake for mistake in MISTAKES}
    renewed = QUOTE.sub(
        lambda m: m[1] + report(by_name[m[2]], m[3]) + m[5],
        MANUAL.read_text(),
    )
    MANUAL.write_text(renewed)
    print(MANUAL)


if __name__ == "__main__":
    sys.exit(main())
