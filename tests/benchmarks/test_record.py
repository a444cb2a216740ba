"""README's figures are those of the checked-in records: every op with a kernel, and the host."""

import importlib.metadata
import json
import re

import pytest

import configs
from benchmarks import bench_host, harness, overview, readme, records


@pytest.fixture(scope="module")
def found():
    where = records.folder()
    assert where, "no record: run `python -m benchmarks --record` on a GPU"
    return records.load(where)


def test_readme_holds_the_records_figures(found):
    text = (readme.ROOT / "README.md").read_text()
    assert text == readme.rewritten(text, readme.render(found)), (
        "README.md differs from the records: run `python -m benchmarks.readme`"
    )


def test_picture_is_the_records(found, tmp_path):
    pinned = re.search(r"matplotlib==(\S+)", (readme.ROOT / "requirements/test.txt").read_text())[1]
    try:
        installed = importlib.metadata.version("matplotlib")
    except importlib.metadata.PackageNotFoundError:
        installed = "none"
    if installed != pinned:
        pytest.skip(f"drawn by matplotlib {pinned}, not {installed}")
    overview.draw(found, tmp_path / "drawn.svg")
    checked_in = records.folder().with_suffix(".svg")
    assert f"({checked_in.relative_to(readme.ROOT)})" in (readme.ROOT / "README.md").read_text()
    assert checked_in.read_bytes() == (tmp_path / "drawn.svg").read_bytes(), (
        f"{checked_in.name} differs from the records: run `python -m benchmarks.readme`"
    )


def test_picture_has_every_case_beside_a_copy(found):
    drawn = overview.panels(found)
    copied = [r for some in found.values() for r in records.results(some) if r.yardstick == "copy"]
    assert sum(map(len, drawn.values())) == len(copied) > 0
    assert {panel for column in overview.columns(drawn) for panel in column} == set(drawn)


def test_record_says_where_its_figures_come_from(found):
    names = ("gpu", "driver", "cuda", "torch", "triton", "date", "commit", "clocks")
    for record in found.values():
        assert not [name for name in names if not record["machine"].get(name)]
        cases = {f"{result.op}, {result.shape}" for result in records.results(record)}
        for run in record.get("other_runs", ()):
            assert set(run["cases"]) < cases
            assert all(run.get(name) for name in ("date", "commit", "clocks")), run


def test_every_result_has_our_figure(found):
    for record in found.values():
        for result in records.results(record):
            assert result.figure(harness.OURS) > 0, result
            assert any(result.method.startswith(start) for start in readme.METHODS), result
            if result.unit != "µs" or bench_host.promised(result.op):
                assert result.yardstick and result.yardstick_rate > 0, result


def test_record_holds_every_family_with_a_kernel(found):
    with_kernel = {kernel.name for kernel in configs.KERNELS if kernel.architectures}
    assert with_kernel | {"host"} <= set(found) <= set(harness.families())


RUN = {"date": "2026-01-01", "commit": "aaaa", "clocks": "slow", "gpu": "NVIDIA X 1"}
LATER = RUN | {"date": "2026-02-02", "commit": "bbbb"}


def test_a_record_takes_the_place_of_its_familys_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    assert records.folder() is None
    records.save(records.of_run({"machine": RUN, "results": {"a": [1], "b": [2]}}))
    (written,) = records.save(records.of_run({"machine": LATER, "results": {"b": [3]}}))
    assert written == tmp_path / "x_1" / "b.json"
    assert json.loads(written.read_text()) == {"machine": LATER, "results": [3]}
    assert {name: r["results"] for name, r in records.load(records.folder()).items()} == {
        "a": [1],
        "b": [3],
    }


def test_other_runs_are_named():
    def record(machine, **more):
        return {"machine": machine, "results": [], **more}

    here, there = ({**run, "cases": [case]} for run, case in ((RUN, "op, 1"), (LATER, "op, 2")))
    found = {
        "a": record(RUN),
        "b": record(LATER, other_runs=[here]),
        "c": record(RUN, other_runs=[there]),
    }
    assert records.main_run(found) == RUN
    of_later = {("2026-02-02", "bbbb", "slow"): ["b (but for op, 1)", "op, 2"]}
    assert records.from_other_runs(found) == of_later
