"""What a family costs stays what it is known to cost, and is shown against a budget."""

import json
import subprocess
import sys

import pytest

import configs
from build_tools import compile, costs, settings
from tests.tools import durations

FAMILIES = [kernel.name for kernel in configs.KERNELS]
KERNELS = 60  # that a family may have without that being known of it
SLACK = 1.15  # of bytes, which compilers differ in
BUSY = "import time\nwhile time.process_time() < 0.4: pass"
WAITS = "import time\ntime.sleep(0.8)"
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
    own = "tests/families/linear_attention/test_linear_attention_simulator.py"
    assert costs.family_of(own) == "linear_attention"
    assert costs.family_of("tests/ops/test_linear_attention_host.py") == "linear_attention"
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

@pytest.fixture
def cost_of(tmp_path, monkeypatch):
    """Returns what a program costs as a compiler that a shell starts, which makes its output."""
    monkeypatch.setenv("THUNDERKITTENS_BUILD_DIR", str(tmp_path))
    monkeypatch.setenv("THUNDERKITTENS_CACHE_GIB", "0")

    def cost_of(program: str) -> float:
        run = ('"$0" -S -c "$1" && touch "$2"', sys.executable, program, "{output}")
        job = compile.Job("made", ("/bin/sh", "-c", *run), "sh", depends=False, strict=())
        (result,) = compile.run([job], "Compiling")
        assert compile.cost(job) == pytest.approx(result.seconds, abs=1e-3)
        return result.seconds

    return cost_of


def test_a_compiler_costs_what_its_processes_compute(cost_of):
    assert 0.35 < cost_of(BUSY)


def test_a_compiler_that_waits_costs_nothing(cost_of):
    assert 0 < cost_of(WAITS) < 0.4


def test_tests_cost_what_they_and_their_processes_compute():
    clock = durations.Clock()
    subprocess.run([sys.executable, "-S", "-c", WAITS], check=True)
    assert clock.lap() < 0.4
    subprocess.run([sys.executable, "-S", "-c", BUSY], check=True)
    assert 0.35 < clock.lap()
    assert clock.lap() < 0.35
    subprocess.run([sys.executable, "-S", "-c", BUSY], check=True)
    clock.start()
    assert clock.lap() < 0.35


def test_the_seconds_of_a_file_are_its_tests(pytestconfig):
    report = pytest.TestReport("a.py::f", ("a.py", 0, "f"), {}, "passed", None, "call")
    setattr(report, durations.ATTRIBUTE, 3.0)
    sent = pytestconfig.hook.pytest_report_to_serializable(config=pytestconfig, report=report)
    sent = json.loads(json.dumps(sent))
    back = pytestconfig.hook.pytest_report_from_serializable(config=pytestconfig, data=sent)
    assert durations.of_files({"passed": [report, back], "": [object()]}) == {"a.py": 6.0}
