"""Pictures of curves, and what is said where they cannot be drawn."""

import sys

from models.drawing import Panel, draw

CURVES = {"a": ([1, 2, 4], [3.0, 2.0, 1.0]), "b": ([1, 2, 4], [1.0, 4.0, 9.0])}


def test_panels_are_a_png(tmp_path):
    png = tmp_path / "new" / "picture.png"
    panels = [Panel("x", "y", CURVES), Panel("x", "y", CURVES, log=True)]
    for drawn in (panels, panels[:1], [*panels, Panel("x", "z", CURVES, {"level": 2.0})]):
        assert draw(png, drawn) == ""
        assert png.read_bytes().startswith(b"\x89PNG")
        png.unlink()


def test_a_single_point_is_seen(tmp_path):
    """A line of one point has no length: of another height, it is another picture."""
    contents = []
    for height in (1.5, 2.5):
        curves = {"a": ([1, 2, 4], [3.0, 2.0, 1.0]), "b": ([2], [height])}
        assert draw(tmp_path / "a.png", [Panel("x", "y", curves)]) == ""
        contents.append((tmp_path / "a.png").read_bytes())
    assert contents[0] != contents[1]


def test_without_matplotlib_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install matplotlib" in draw(tmp_path / "a.png", [Panel("x", "y", CURVES)])
