"""Draws a run's log.csv: loss, norm of the gradients, learning rate and speed, as a PNG.

    python -m demos.train_gpt2.plot runs/train_gpt2/log.csv

The picture goes beside the log, or to --out.
"""

import argparse
import csv
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models import drawing

Curve = tuple[list[float], list[float]]
COLUMNS = ("loss", "eval_loss", "norm", "lr", "tokens_per_second", "hellaswag")


def read(log: Path) -> dict[str, Curve]:
    """The steps and values of each of COLUMNS.

    A last line that is cut off, for the run goes on, counts not.

    Raises:
        ValueError: It is no log of a run, or has no step yet.
    """
    curves: dict[str, Curve] = {name: ([], []) for name in COLUMNS}
    try:
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise ValueError(f"{log}: is no text ({error})") from error
    rows = csv.DictReader(line for line in lines if line.endswith("\n"))
    missing = [name for name in ("step", *COLUMNS) if name not in (rows.fieldnames or ())]
    if missing:
        raise ValueError(f"{log}: not a log of train_gpt2: it has no column {missing[0]}")
    for row in rows:
        for name, (steps, values) in curves.items():
            if not row[name]:
                continue
            try:
                step, value = float(row["step"]), float(row[name])
            except ValueError:
                raise ValueError(f"{log}: line {rows.line_num}: {name} is no number") from None
            steps.append(step)
            values.append(value)
    if not curves["loss"][0]:
        raise ValueError(f"{log}: has no step yet")
    return curves


def panels(curves: dict[str, Curve]) -> list[drawing.Panel]:
    """A diagram for each number of a step."""
    losses = {"training": curves["loss"]}
    if curves["eval_loss"][0]:
        losses["held out"] = curves["eval_loss"]
    drawn = [
        drawing.Panel("step", "loss (nats a token)", losses),
        drawing.Panel("step", "norm of the gradients", {"norm": curves["norm"]}),
        drawing.Panel("step", "learning rate", {"rate": curves["lr"]}),
        drawing.Panel("step", "tokens a second", {"speed": curves["tokens_per_second"]}),
    ]
    if curves["hellaswag"][0]:
        answered = {"answered": curves["hellaswag"]}
        drawn.append(drawing.Panel("step", "share of questions answered", answered))
    return drawn


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0; 1 where it cannot be read or drawn; 2 of bad arguments."""
    parser = argparse.ArgumentParser(prog="plot", description=__doc__.split("\n")[0])
    parser.add_argument("log", type=Path, help="log.csv of a run")
    parser.add_argument("--out", type=Path, help="the picture (default: log.png beside it)")
    options = parser.parse_args(arguments)
    png = options.out or options.log.with_suffix(".png")
    try:
        why_not = drawing.draw(png, panels(read(options.log)))
    except (ValueError, OSError) as error:
        why_not = str(error)
    if why_not:
        print(f"plot: {why_not}", file=sys.stderr)
        return 1
    print(png)
    return 0


if __name__ == "__main__":
    sys.exit(main())
