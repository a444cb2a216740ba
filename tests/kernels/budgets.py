"""What each kernel moves in one small case: bytes, sectors of memory, wavefronts, bank conflicts.

Not how many instructions it executes: those change with every edit, and say little of its time.

`python -m tests.kernels.budgets` regenerates budgets.json. Where a change of it is meant, its diff
belongs into the commit; where none is, test_budgets_simulator.py says so.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch

import thunderkittens
from tests.kernels import (
    activation_cases,
    attention_cases,
    cross_entropy_cases,
    norm_cases,
    norm_rms_add_cases,
    rotary_cases,
)
from tests.kernels.attention_cases import BF16

FILE = Path(__file__).with_suffix(".json")
CASES = {
    "swiglu": (activation_cases, activation_cases.EXAMPLE),
    "swiglu, unaligned": (
        activation_cases,
        activation_cases.Case("swiglu", 1031, (5,), BF16, layout="halves"),
    ),
    "gelu": (activation_cases, activation_cases.Case("gelu", 1024, (5,), BF16)),
    "attention, full": (attention_cases, attention_cases.Case(230, 300, group=2)),
    "attention, causal": (attention_cases, attention_cases.Case(130, 130, True, head_dim=128)),
    "cross_entropy": (cross_entropy_cases, cross_entropy_cases.Case(1024, (300,), BF16)),
    "cross_entropy, few rows": (cross_entropy_cases, cross_entropy_cases.Case(1024, (20,), BF16)),
    "cross_entropy, clusters": (
        cross_entropy_cases,
        cross_entropy_cases.Case(9001, (1,), BF16, ignored=0),
    ),
    "cross_entropy, streamed": (
        cross_entropy_cases,
        cross_entropy_cases.Case(33001, (5,), BF16, dloss=0.5),
    ),
    "layer_norm": (norm_cases, norm_cases.Case(1024, (20,), BF16, BF16, BF16)),
    "layer_norm, few rows": (norm_cases, norm_cases.Case(1024, (5,), BF16, BF16, BF16)),
    "layer_norm, long": (norm_cases, norm_cases.Case(3000, (20,), BF16, BF16, BF16)),
    "layer_norm, wide": (norm_cases, norm_cases.Case(norm_cases.WIDE, (3,), BF16, BF16, BF16)),
    "rotary": (rotary_cases, rotary_cases.Case(1, 4, 32, 8, 128)),
    "rotary, single elements": (rotary_cases, rotary_cases.Case(1, 4, 4, 2, 90)),
    "rms_norm, heads": (
        norm_rms_add_cases,
        norm_rms_add_cases.Case("rms_norm", 128, (4, 40), BF16, BF16, layout="heads"),
    ),
    "add_rms_norm, dropout": (norm_rms_add_cases, norm_rms_add_cases.EXAMPLE),
}


def measure(name: str, **options) -> dict[str, dict]:
    """Runs a case in the simulator.

    Args:
        name: One of CASES.
        options: Of `thunderkittens.backend`.

    Returns:
        By kernel, its sums.
    """
    cases, case = CASES[name]
    torch.manual_seed(0)
    inputs = cases.make(case)
    with tempfile.TemporaryDirectory() as folder:
        facts = Path(folder, "facts.json")
        with thunderkittens.backend("simulator", facts=facts, **options):
            cases.run_case(case, inputs)
        launches = json.loads(facts.read_text())["launches"]
    return {launch["kernel"]: _budget(launch) for launch in launches}


def _budget(launch: dict) -> dict:
    total = launch["total"]
    sums = {k: total.get(k, 0) for k in ("shared_bytes", "global_bytes", "sectors", "wavefronts")}
    conflicts = {"conflicts": total.get("wavefronts", 0) - total.get("passes", 0)}
    return sums | conflicts


def main() -> None:
    """Writes the budgets."""
    os.environ["THUNDERKITTENS_STRICT"] = "1"
    budgets = {name: measure(name) for name in CASES}
    FILE.write_text(json.dumps(budgets, indent=1) + "\n")
    print(FILE)


if __name__ == "__main__":
    sys.exit(main())
