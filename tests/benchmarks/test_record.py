"""The figures of RESULTS.md and README are the records': every op with a kernel, and the host."""

import importlib.metadata
import json
import re
import unittest.mock

import pytest

import configs
from benchmarks import bench_host, harness, headline, overview, records, results
from tests.tools import families

ROOT = results.FOLDER.parent
README = " ".join((ROOT / "README.md").read_text().split())


@pytest.fixture(scope="module")
def found():
    where = records.folder()
    assert where, "no record: run `python -m benchmarks --record` on a GPU"
    return records.load(where)


def test_results_hold_the_records_figures(found):
    assert results.RESULTS.read_text() == results.render(found), (
        "RESULTS.md differs from the records: run `python -m benchmarks.results`"
    )


def test_picture_of_readme_is_the_records(found):
    picture = headline.PICTURE.relative_to(ROOT)
    assert f"({picture})" in README
    assert headline.PICTURE.read_text() == headline.draw(found), (
        f"{picture.name} differs from the records: run `python -m benchmarks.results`"
    )


def test_picture_of_readme_has_at_most_twenty_bars_each_with_its_figure(found):
    shown = headline.chosen(found)
    bars = [bar for _, result in shown for bar in headline.bars(result)]
    text = headline.draw(found)
    assert {result.unit for _, result in shown} == set(headline.PANELS)
    assert len(shown) < len(bars) <= 20
    assert text.count("<rect") == 1 + len(headline.LEGEND) + len(bars)  # 1: the background
    for _, name, figure in bars:
        assert f">{name}</text>" in text
        assert f">{figure:.0f}</text>" in text or f">{figure:.2f}</text>" in text


def test_figures_in_readmes_words_are_the_records(found):
    least, most, mean = headline.against(found, "attention", "cuDNN")
    assert f"{least:.2f} to {most:.2f} times as fast as cuDNN forward" in README
    assert f"{mean:.2f} on average" in README
    least, most, mean = headline.against(found, "attention_backward", "cuDNN")
    assert f"{least:.2f} to {most:.2f} times backward ({mean:.2f})" in README
    least, most, mean = headline.against(found, "attention_heads", "cuDNN")
    assert f"or 192 beside 128, {least:.2f} to {most:.2f} times ({mean:.2f})." in README
    step, warm_up = (r.seconds for r in records.results(found["train_step"]))
    assert f"takes {1e3 * step[harness.OURS]:.0f} ms with these ops in eager mode" in README
    ours = 1e3 * step["ours, bf16 weights"]
    assert f"and {ours:.0f} ms with bf16 weights and our AdamW" in README
    assert f"with torch's, {1e3 * step['torch']:.0f} ms, and" in README
    compiled = f"{1e3 * step['torch.compile']:.0f} ms under `torch.compile`, after "
    assert f"{compiled}{warm_up['torch.compile']:.0f} s of warm-up" in README
    step = records.results(found["generate"])[0].seconds
    generated = f"takes {1e3 * step[harness.OURS]:.2f} ms a token; by transformers' eager model, "
    assert f"{generated}{1e3 * step['transformers']:.1f}." in README
    cases, fastest, near = headline.memory_bound(found)
    assert (
        f"in {fastest} of {cases} cases, and reach nine tenths of a copy's rate in {near}" in README
    )


def test_picture_is_the_records(found, tmp_path):
    pinned = re.search(r"matplotlib==(\S+)", (ROOT / "requirements/demo.txt").read_text())[1]
    try:
        installed = importlib.metadata.version("matplotlib")
    except importlib.metadata.PackageNotFoundError:
        installed = "none"
    if installed != pinned:
        pytest.skip(f"drawn by matplotlib {pinned}, not {installed}")
    overview.draw(found, tmp_path / "drawn.svg")
    checked_in = records.folder().with_suffix(".svg")
    assert f"({checked_in.relative_to(results.FOLDER)})" in results.RESULTS.read_text()
    assert checked_in.read_bytes() == (tmp_path / "drawn.svg").read_bytes(), (
        f"{checked_in.name} differs from the records: run `python -m benchmarks.results`"
    )


def test_the_same_records_give_the_same_picture(found, tmp_path):
    pytest.importorskip("matplotlib", reason="nothing to draw with")
    drawn = [tmp_path / f"{i}.svg" for i in range(2)]
    for path in drawn:
        overview.draw(found, path)
    assert len({path.read_bytes() for path in drawn}) == 1


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
            assert any(result.method.startswith(start) for start in results.METHODS), result
            if result.unit not in harness.TIMES or bench_host.promised(result.op):
                assert result.yardstick and result.yardstick_rate > 0, result


# Families that were measured, but not yet by a run that makes a record.
UNRECORDED = {
    module.__name__.split(".")[-2]
    for module in families.each("benchmark.py")
    if not getattr(module, "RECORDED", True)
}


def test_record_holds_every_family_with_a_kernel(found):
    with_kernel = {kernel.name for kernel in configs.KERNELS if kernel.architectures}
    assert with_kernel - UNRECORDED | {"host"} <= set(found) <= set(harness.families())
    assert not UNRECORDED & set(found), "recorded now: take them out of the list"


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


def test_a_section_says_where_its_figures_come_from(found):
    record = next(iter(found.values()))
    machine = record["machine"] | RUN | {"gpu": "NVIDIA X 1"}
    other = LATER | {"clocks": "fast", "cases": ["op, 2"]}
    text = results.section(
        next(iter(found)), record | {"machine": machine, "other_runs": [other], "since": "New."}
    )
    said = "; 2026-01-01, commit `aaaa`; clocks as found: slow. But op, 2: 2026-02-02, commit "
    assert "\n\nNVIDIA X 1, driver " in text and "\n\nNew.\n\n" in text
    assert said + "`bbbb`; clocks as found: fast." in text


def test_what_is_ours_in_another_way_is_no_peer_of_the_picture():
    axis = unittest.mock.MagicMock()
    result = harness.Result("op", "shape", "bf16", "TB/s", 10**12, yardstick_rate=1.0)
    result.seconds = {harness.OURS: 2.0, harness.GENERIC: 1.0, "torch": 4.0}
    overview.draw_panel(axis, "title", [result])
    ours, best, others = axis.scatter.call_args_list
    assert (ours.args, best.args, others.args) == ((0.5, 0), ([0.25], [0]), ([], []))
