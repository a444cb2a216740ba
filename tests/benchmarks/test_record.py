"""README's figures are those of the checked-in record: every op with a kernel, and the host."""

import importlib.metadata
import json
import re

import pytest

import configs
from benchmarks import bench_host, harness, overview, readme


@pytest.fixture(scope="module")
def record():
    path = readme.record_path()
    assert path, "no record: run `python -m benchmarks --record` on a GPU"
    return json.loads(path.read_text())


def test_readme_holds_the_records_figures(record):
    text = (readme.ROOT / "README.md").read_text()
    assert text == readme.rewritten(text, readme.render(record)), (
        "README.md differs from the record: run `python -m benchmarks.readme`"
    )


def test_picture_is_the_records(record, tmp_path):
    pinned = re.search(r"matplotlib==(\S+)", (readme.ROOT / "requirements/test.txt").read_text())[1]
    try:
        installed = importlib.metadata.version("matplotlib")
    except importlib.metadata.PackageNotFoundError:
        installed = "none"
    if installed != pinned:
        pytest.skip(f"drawn by matplotlib {pinned}, not {installed}")
    overview.draw(record, tmp_path / "drawn.svg")
    checked_in = readme.record_path().with_suffix(".svg")
    assert f"({checked_in.relative_to(readme.ROOT)})" in (readme.ROOT / "README.md").read_text()
    assert checked_in.read_bytes() == (tmp_path / "drawn.svg").read_bytes(), (
        f"{checked_in.name} differs from the record: run `python -m benchmarks.readme`"
    )


def test_picture_has_every_case_beside_a_copy(record):
    drawn = [r for results in overview.panels(record).values() for r in results]
    copied = [
        entry
        for family in {family for family, _ in overview.PANELS.values()}
        for entry in record["results"][family]
        if entry["yardstick"] == "copy"
    ]
    assert len(drawn) == len(copied) > 0
    assert {title for column in overview.COLUMNS for title in column} == set(overview.PANELS)


def test_record_says_where_its_figures_come_from(record):
    names = ("gpu", "driver", "cuda", "torch", "triton", "date", "commit", "clocks")
    assert not [name for name in names if not record["machine"].get(name)]
    cases = {f"{e['op']}, {e['shape']}" for found in record["results"].values() for e in found}
    for run in record.get("earlier", ()):
        assert set(run["families"]) < set(record["results"])
        assert set(run.get("cases", ())) | set(run.get("but_for", ())) < cases
        assert all(run.get(name) for name in ("date", "commit", "clocks")), run


def test_every_result_has_our_figure(record):
    for entries in record["results"].values():
        for entry in entries:
            result = harness.Result(**entry)
            assert result.figure(harness.OURS) > 0, entry
            assert any(result.method.startswith(start) for start in readme.METHODS), entry
            if result.unit != "µs" or bench_host.promised(result.op):
                assert result.yardstick and result.yardstick_rate > 0, entry


def test_record_holds_every_family_with_a_kernel(record):
    with_kernel = {kernel.name for kernel in configs.KERNELS if kernel.architectures}
    assert with_kernel | {"host"} <= set(record["results"]) <= set(harness.families())
