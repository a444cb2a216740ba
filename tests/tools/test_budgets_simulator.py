"""What kernels move is what their family's budgets.json allows, in any order of threads."""

import json

import pytest

from tests.tools import budgets
from thunderkittens import _loader

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)
RENEW = "if that is meant, `python -m tests.tools.budgets` regenerates the files"


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would execute nothing."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize(
    "options",
    [{}, {"policy": "lazy"}, {"policy": "random", "seed": 5}],
    ids=["eager", "lazy", "random"],
)
@pytest.mark.parametrize(("family", "name"), budgets.CASES, ids=[name for _, name in budgets.CASES])
def test_kernels_keep_their_budgets(family, name, options):
    want = json.loads(budgets.file(family).read_text())[name]
    got = budgets.measure(family, name, **options)
    assert got.keys() == want.keys()
    changes = [
        f"{kernel}: {what} {want[kernel].get(what, 0)} → {got[kernel].get(what, 0)}"
        for kernel in want
        for what in want[kernel].keys() | got[kernel].keys()
        if want[kernel].get(what, 0) != got[kernel].get(what, 0)
    ]
    assert not changes, f"{'; '.join(sorted(changes))}; {RENEW}"


@pytest.mark.parametrize("family", sorted({family for family, _ in budgets.CASES}))
def test_every_case_has_a_budget(family):
    names = {name for of, name in budgets.CASES if of == family}
    assert json.loads(budgets.file(family).read_text()).keys() == names
