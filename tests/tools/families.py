"""The families' own files, found by folder and name: no list names a family or an op."""

import importlib
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent.parent / "families"


def names() -> list[str]:
    """The families that have a folder of tests."""
    return sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))


def modules(pattern: str) -> dict[str, list[ModuleType]]:
    """Imports the files of each family that have such a name.

    Args:
        pattern: Of the name, such as `mutation.py` or `*cases.py`.

    Returns:
        By family, the modules; no entry where there is none.
    """
    found: dict[str, list[ModuleType]] = {}
    for name in names():
        for path in sorted((FOLDER / name).glob(pattern)):
            module = importlib.import_module(f"tests.families.{name}.{path.stem}")
            found.setdefault(name, []).append(module)
    return found


def each(pattern: str) -> list[ModuleType]:
    """As `modules`, of all families."""
    return [module for some in modules(pattern).values() for module in some]
