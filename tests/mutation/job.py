"""The mutation job: which mutants there are, what became of them, and the score."""

import hashlib
from collections import Counter
from dataclasses import dataclass

from build_tools.settings import BuildError
from tests.mutation import listed, operators, targets
from tests.mutation.bench import NOTICED, Bench, Verdict
from tests.mutation.listed import Listed
from tests.mutation.mutant import Mutant
from tests.mutation.source import Source

OUTCOMES = (*NOTICED, "compile", "equivalent", "survived")


@dataclass(frozen=True)
class Result:
    """A mutant, what became of it, and where it is listed."""

    mutant: Mutant
    verdict: Verdict
    entry: Listed | None

    @property
    def column(self) -> str:
        """The column of the table that it is counted in, one of OUTCOMES."""
        listed_survivor = self.verdict.outcome == "survived" and self.entry is not None
        return "equivalent" if listed_survivor else self.verdict.outcome


def mutants() -> list[Mutant]:
    """Those of all the targets."""
    sources = [
        Source(file, targets.text(file), targets.LEFT_OUT.get(file, ())) for file in targets.TARGETS
    ]
    return [mutant for source in sources for mutant in operators.mutants(source)]


def sample(among: list[Mutant], count: int) -> list[Mutant]:
    """`count` of the mutants that should be noticed: others whenever a kernel has changed."""
    texts = "\0".join(targets.text(file) for file in targets.TARGETS)
    rank = {m: hashlib.sha256(f"{texts}\0{m}\0{m.begin}".encode()).digest() for m in among}
    fit = (m for m in among if listed.find(m) is None)
    return sorted(fit, key=rank.__getitem__)[:count]


def run(chosen: list[Mutant], bench: Bench | None = None) -> list[Result]:
    """Judges mutants, as many at a time as the machine can.

    Raises:
        BuildError: The kernels as they are fail.
    """
    bench = bench or Bench(targets.programs())
    for file in dict.fromkeys(mutant.file for mutant in chosen):
        verdict = bench.judge_text(file, targets.text(file), targets.TARGETS[file])
        if verdict.outcome != "survived":
            raise BuildError(f"{file} itself fails in {verdict.where}: {verdict.said}")
    work = [(m.file, m.applied(targets.text(m.file)), targets.TARGETS[m.file]) for m in chosen]
    verdicts = bench.judge_all(work)
    return [Result(m, v, listed.find(m)) for m, v in zip(chosen, verdicts, strict=True)]


def score(results: list[Result]) -> float:
    """What part of the mutants that could be noticed was.

    Those that do not compile do not count, nor do those that are equivalent.
    """
    counts = Counter(result.column for result in results)
    killed = sum(counts[outcome] for outcome in NOTICED)
    total = killed + counts["survived"]
    return killed / total if total else 1.0


def table(results: list[Result]) -> str:
    """How many of each source, and of each kind of mistake, ended how."""
    rows = [("", *OUTCOMES, "score")]
    groups = {f"{file}": [r for r in results if r.mutant.file == file] for file in targets.TARGETS}
    for kind in dict.fromkeys(result.mutant.operator for result in results):
        groups[f"  {kind}"] = [r for r in results if r.mutant.operator == kind]
    groups["all"] = results
    for name, group in filter(lambda item: item[1], groups.items()):
        counts = Counter(result.column for result in group)
        cells = (str(counts[outcome] or "") for outcome in OUTCOMES)
        rows.append((name, *cells, f"{100 * score(group):.1f} %"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0])]
            + [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
        )
        for row in rows
    )


def complaints(results: list[Result]) -> list[str]:
    """What is not as it should be: survivors, and entries that are no longer true."""
    said = [
        f"survived: {r.mutant}\n    {r.mutant.context}" for r in results if r.column == "survived"
    ]
    for result in results:
        if result.entry and result.verdict.noticed:
            said.append(
                f"listed ({result.entry.reason}), but noticed: {result.mutant}\n"
                f"    {result.verdict.where}: {result.verdict.said}"
            )
    return said
