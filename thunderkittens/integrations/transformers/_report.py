"""What `apply` and `revert` have done, to read and to look up."""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Places:
    """Modules of one class that were treated alike.

    Attributes:
        part: "norm", "mlp", "rotary" or "loss".
        name: Their class; of a loss, the function's name.
        outcome: The op that took their place, or why they were left alone.
        paths: Where they are in the model, as `get_submodule` takes it.
    """

    part: str
    name: str
    outcome: str
    paths: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Report:
    """The state of a model after `apply` or `revert`; printed, it is a line per class.

    Attributes:
        model: The model's class.
        replaced: What takes ops of ours now, whether by this call or an earlier one.
        skipped: What might, but was left alone, and why.
        reverted: What was put back.
    """

    model: str
    replaced: tuple[Places, ...] = ()
    skipped: tuple[Places, ...] = ()
    reverted: tuple[Places, ...] = ()

    def __str__(self) -> str:
        lines = [self._headline()]
        for title, group in (
            ("replaced", self.replaced),
            ("put back", self.reverted),
            ("left alone", self.skipped),
        ):
            if group:
                lines += [f"  {title}", *_table(group)]
        return "\n".join(lines)

    def _headline(self) -> str:
        if self.reverted:
            return f"{self.model}: {_counted(_count(self.reverted))} put back"
        if not self.replaced:
            return f"{self.model}: nothing of it takes thunderkittens ops"
        return f"{self.model}: {_counted(_count(self.replaced))} of it on thunderkittens ops"


def _count(group: tuple[Places, ...]) -> int:
    return sum(len(places.paths) for places in group)


def _counted(count: int) -> str:
    return f"{count} part" + ("s" if count != 1 else "")


def _table(group: tuple[Places, ...]) -> list[str]:
    rows = [
        (p.part, f"{len(p.paths)} × {p.name}", p.outcome, ", ".join(_patterns(p.paths)))
        for p in group
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return [
        "    "
        + "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]
        ).rstrip()
        for row in rows
    ]


def _patterns(paths: tuple[str, ...]) -> list[str]:
    """The paths with a * for each index, each once."""
    return list(
        dict.fromkeys(re.sub(r"(?<=\.)\d+(?=\.|$)", "*", path) or "(root)" for path in paths)
    )
