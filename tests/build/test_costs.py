"""What a family costs stays what it is known to cost, and is shown against a budget."""

import json

import pytest

import configs
from build_tools import costs, settings

FAMILIES = [kernel.name for kernel in configs.KERNELS]
KERNELS = 60  # that a family may have without that being known of it
SLACK = 1.15  # of bytes, which compilers differ in
RENEW = "where that is meant, `python -m build_tools costs --write` keeps it"


@pytest.fixture(scope="module")
def jobs():
    return costs.jobs()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_kernels_that_it_is_known_to_have(family, jobs):
    found = costs.sizes(jobs[family]).get("kernels")
    if found is None:
        pytest.skip("its CUDA kernels are not built here")
    path = costs.kept_path(family)
    known = json.loads(path.read_text())["kernels"] if path.is_file() else None
    assert found == known or (known is None and found <= KERNELS), f"{found}, {known}: {RENEW}"


@pytest.mark.parametrize("column", costs.COLUMNS[1:-1])
@pytest.mark.parametrize("family", FAMILIES)
def test_its_objects_are_no_larger(family, column, jobs):
    name = f"bytes, {column}"
    found, path = costs.sizes(jobs[family]).get(name), costs.kept_path(family)
    if found is None:
        pytest.skip("its objects are not built here")
    if not path.is_file():
        pytest.skip(f"nothing is known of it: {RENEW}")
    known = json.loads(path.read_text())[name]
    assert found <= SLACK * known, f"{found} bytes, {known} before: {RENEW}"


def test_a_test_is_of_the_family_in_its_path():
    assert costs.family_of("tests/families/norm/test_norm_long_simulator.py") == "norm"
    assert costs.family_of("tests/ops/test_linear_cross_entropy.py") == "cross_entropy"
    assert costs.family_of("tests/families/attention/test_budgets.py") == "attention"
    assert costs.family_of("tests/build/test_normal.py") is None


def test_what_is_over_the_budget_is_marked(tmp_path, monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_BUILD_DIR", str(tmp_path))
    monkeypatch.setenv("THUNDERKITTENS_JOBS", "2")
    first, second = FAMILIES[:2]
    monkeypatch.setattr(costs.compile, "cost", lambda job: 100.0 if second in job.name else 0)
    tests = {f"tests/families/{first}/test_a.py": 299.0, f"tests/families/{second}/test_b.py": 7.0}
    (tmp_path / costs.TEST_SECONDS).write_text(json.dumps(tests))
    rows = {line.split()[0]: line for line in costs.table().splitlines()[2:]}
    assert list(rows) == FAMILIES
    assert "149.5" in rows[first] and "over" not in rows[first]
    assert rows[second].endswith("over the budget")
    assert settings.jobs() == 2
