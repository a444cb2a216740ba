"""Pictures of the simulator's timelines: rows, order, what a bar is, and what is refused."""

import json
import xml.etree.ElementTree

import pytest

from build_tools import timeline


def named(what, process, row, name):
    return {"ph": "M", "name": f"{what}_name", "pid": process, "tid": row, "args": {"name": name}}


def span(process, row, name, start, end):
    return {"ph": "X", "name": name, "pid": process, "tid": row, "ts": start, "dur": end - start}


TRACE = {
    "traceEvents": [
        named("process", 1, 0, "first"),
        named("thread", 1, 1, "warp  0"),
        span(1, 1, "runs", 0, 5),
        named("process", 2, 0, "second"),
        named("thread", 2, 1, "TMA"),
        named("thread", 2, 2, "TMA, 2"),
        named("thread", 2, 3, "warp  0"),
        named("thread", 2, 4, "wgmma of warpgroup 1"),
        span(2, 3, "runs", 0, 1),
        span(2, 3, "waits for mbarrier", 1, 1001),
        span(2, 1, "tma_load", 1, 1000),
        span(2, 2, "tma_load", 1, 1001),
        span(2, 4, "wgmma", 1001, 1002),
        {"ph": "i", "name": "report", "pid": 2, "tid": 0, "ts": 1003},
    ]
}


def shapes(text):
    """The bars of a picture below its legend: class, left, top, width, height."""
    found = [e.attrib for e in xml.etree.ElementTree.fromstring(text).iter() if "rect" in e.tag]
    numbers = [[float(e.get(name, 0)) for name in ("x", "y", "width", "height")] for e in found]
    kinds = [e["class"] for e in found]
    return [(k, *n) for k, n in zip(kinds, numbers, strict=True) if n[1] >= timeline.TOP]


def words(text):
    return [e.text for e in xml.etree.ElementTree.fromstring(text).iter() if "text" in e.tag]


def test_a_row_has_lanes_for_what_overlaps_and_bars_are_in_their_order():
    bars = {(kind, top): (x, x + width) for kind, x, top, width, _ in shapes(timeline.draw(TRACE))}
    copies, first, waits, product = (
        sorted(key for key in bars if key[0] == kind) for kind in ("hue1", "hue2", "plain", "hue0")
    )
    assert len(copies) == 2 and copies[0][1] < copies[1][1] < first[0][1] == waits[0][1]
    assert first[0][1] < product[0][1]
    step = timeline.WIDTH / 4  # between 0, 1, 1000, 1001 and 1002
    ends = {0: 0, 1: 1, 1000: 2, 1001: 3, 1002: 4}
    wanted = [(copies[0], 1, 1000), (copies[1], 1, 1001), (first[0], 0, 1), (waits[0], 1, 1001)]
    for key, start, end in [*wanted, (product[0], 1001, 1002)]:
        left, right = (timeline.LEFT + ends[time] * step for time in (start, end))
        assert bars[key] == pytest.approx((left, right - 0.5), abs=0.02)


def test_the_last_launch_is_drawn_or_the_one_that_is_named():
    assert words(timeline.draw(TRACE))[0] == "second"
    assert words(timeline.draw(TRACE, 0))[0] == "first"
    assert words(timeline.draw(TRACE, title="a < b"))[0] == "a < b"
    rows = ["TMA", "warp  0", "wgmma of warpgroup 1"]
    assert words(timeline.draw(TRACE))[-3:] == rows
    legend = words(timeline.draw(TRACE, 0))
    assert "runs" in legend and "a copy is under way" not in legend


def test_the_command(tmp_path, capsys):
    trace, picture = tmp_path / "t.json", tmp_path / "t.svg"
    trace.write_text(json.dumps(TRACE))
    assert timeline.main([str(trace), str(picture), "--launch", "0", "--title", "mine"]) == 0
    assert picture.read_text() == timeline.draw(TRACE, 0, "mine")
    with pytest.raises(SystemExit) as caught:
        timeline.main([str(trace), str(picture), "--launch", "2"])
    assert caught.value.code == 2
    assert "--launch must be -2 to 1, got 2" in capsys.readouterr().err
