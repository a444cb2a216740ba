"""What each kernel moves in one small case: bytes, sectors of memory, wavefronts, bank conflicts.

Not how many instructions it executes: those change with every edit, and say little of its time.
The cases are the BUDGETS of tests/families/<family>/*cases.py; what they come to stands beside
them, in budgets.json.

`python -m tests.tools.budgets [FAMILY …]` regenerates it, of some families or of all. Where a
change of it is meant, its diff belongs into the commit; where none is, test_budgets_simulator.py
says so.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import thunderkittens
from tests.tools import families

# By family and name: the module that makes and runs a case, and the case.
CASES: dict[tuple[str, str], tuple[ModuleType, Any]] = {
    (family, name): (cases, case)
    for family, modules in families.modules("*cases.py").items()
    for cases in modules
    for name, case in getattr(cases, "BUDGETS", {}).items()
}


def file(family: str) -> Path:
    """Where a family's budgets are kept."""
    return families.FOLDER / family / "budgets.json"


def measure(family: str, name: str, **options) -> dict[str, dict]:
    """Runs a case in the simulator.

    Args:
        family: Whose it is.
        name: Of the case.
        options: Of `thunderkittens.backend`.

    Returns:
        By kernel, its sums.
    """
    cases, case = CASES[family, name]
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


def main(words: list[str]) -> None:
    """Writes the budgets of some families, or of all."""
    os.environ["THUNDERKITTENS_STRICT"] = "1"
    for family in words or families.names():
        names = [name for of, name in CASES if of == family]
        if not names:
            sys.exit(f"error: no budgets in tests/families/{family}")
        budgets = {name: measure(family, name) for name in names}
        file(family).write_text(json.dumps(budgets, indent=1) + "\n")
        print(file(family))


if __name__ == "__main__":
    main(sys.argv[1:])
