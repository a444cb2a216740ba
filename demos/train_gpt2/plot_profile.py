"""Draws a run's profile.csv: where a step's time goes, and how much of it the peak rate needs.

    python -m demos.train_gpt2.plot_profile runs/train_gpt2/profile.csv

The picture goes beside the file, or to --out, whose suffix may be .png or .svg.
"""

import argparse
import csv
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models import drawing

COLUMNS = ("launches", "ms", "flops", "bytes", "ms_at_peak")
SHORT = 0.005  # of a step: parts that take less are one bar


@dataclass
class Part:
    """What a step spends on a part: milliseconds, and what it does in them."""

    name: str
    launches: float
    ms: float
    flops: float
    bytes: float
    ms_at_peak: float  # 0: unknown

    def rate(self) -> str:
        """By the tensor cores where it has products, else of memory."""
        if self.ms == 0 or not self.flops + self.bytes:
            return ""
        if self.flops:
            rate = f", {self.flops / self.ms / 1e9:.0f} TFLOP/s"
        else:
            rate = f", {self.bytes / self.ms / 1e9:.2f} TB/s"
        return rate + (f", {self.ms_at_peak / self.ms:.0%} of peak" if self.ms_at_peak else "")


def read(profile: Path) -> list[Part]:
    """The parts of a step, the longest first.

    Raises:
        ValueError: It is no profile of a run.
    """
    try:
        rows = csv.DictReader(profile.read_text(encoding="utf-8").splitlines())
    except UnicodeDecodeError as error:
        raise ValueError(f"{profile}: is no text ({error})") from error
    missing = [name for name in ("part", *COLUMNS) if name not in (rows.fieldnames or ())]
    if missing:
        raise ValueError(f"{profile}: not a profile of train_gpt2: it has no column {missing[0]}")
    parts = []
    for row in rows:
        try:
            parts.append(Part(row["part"], *(float(row[name]) for name in COLUMNS)))
        except (TypeError, ValueError):
            raise ValueError(f"{profile}: line {rows.line_num}: has no number") from None
    if not parts:
        raise ValueError(f"{profile}: has no part")
    return parts


def bars(parts: list[Part]) -> dict[str, tuple[float, float, str]]:
    """A bar a part; those that are short are one."""
    total = sum(part.ms for part in parts)
    drawn, rest = {}, 0.0
    for part in parts:
        if part.ms < SHORT * total:
            rest += part.ms
            continue
        text = f"{part.ms:.1f} ms, {part.ms / total:.1%}{part.rate()}"
        drawn[part.name] = (part.ms, min(part.ms, part.ms_at_peak), text)
    if rest:
        drawn["all others"] = (rest, 0.0, f"{rest:.1f} ms, {rest / total:.1%}")
    return drawn


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0; 1 where it cannot be read or drawn; 2 of bad arguments."""
    parser = argparse.ArgumentParser(prog="plot_profile", description=__doc__.split("\n")[0])
    parser.add_argument("profile", type=Path, help="profile.csv of a run")
    parser.add_argument("--out", type=Path, help="the picture (default: profile.png beside it)")
    options = parser.parse_args(arguments)
    picture = options.out or options.profile.with_suffix(".png")
    try:
        axis = "ms of a step; dark: what it would take at the peak of the data sheet"
        why_not = drawing.draw_bars(picture, axis, bars(read(options.profile)))
    except (ValueError, OSError) as error:
        why_not = str(error)
    if why_not:
        print(f"plot_profile: {why_not}", file=sys.stderr)
        return 1
    print(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
