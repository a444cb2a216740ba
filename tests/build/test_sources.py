"""What must not be in the sources, whatever the reason."""

import re
from pathlib import Path

import pytest

from build_tools.settings import ROOT

TREES = ("benchmarks", "build_tools", "csrc", "demos", "tests", "thunderkittens")
SUFFIXES = {".py", ".cpp", ".cu", ".cuh", ".h", ".hpp"}
PICKLES = "reads pickles: safetensors only"
FORBIDDEN = {
    PICKLES: r"\btorch\.load\(|^\s*(?:import|from) pickle\b",
    "links the driver: the package must import without one": r"-lcuda\b",
    "runs downloaded code": r"\btrust_remote_code\s*=\s*True|\burlopen\(",
}
# These make them themselves, in memory.
RIGHT = {PICKLES: {"tests/families/adamw/test_optimizer.py", "tests/integrations/test_apply.py"}}


def sources() -> list[Path]:
    paths = [path for tree in TREES for path in (ROOT / tree).rglob("*")]
    return [path for path in paths if path.suffix in SUFFIXES and path != Path(__file__)]


@pytest.mark.parametrize("rule", FORBIDDEN)
def test_sources_are_free_of(rule):
    pattern = re.compile(FORBIDDEN[rule], re.MULTILINE)
    found = {str(path.relative_to(ROOT)) for path in sources() if pattern.search(path.read_text())}
    assert found == RIGHT.get(rule, set()), rule
