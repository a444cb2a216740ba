"""Draws pictures as SVG text: shapes of named classes, which have colours for light and dark pages.

Each picture has a background of its own, so that it can be read on any page, and its classes switch
with the reader's colour scheme. The same calls give the same text.
"""

from html import escape

FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

# class: (light, dark). Hues of one lightness, told apart by people who see red and green alike too.
FILLS = {
    "card": ("#ffffff", "#16191d"),
    "ours": ("#d9480f", "#ff922b"),
    "torch": ("#5c7cfa", "#748ffc"),
    "other": ("#adb5bd", "#868e96"),
    "hue0": ("#ffd8a8", "#7a4a17"),
    "hue1": ("#a5d8ff", "#1b4f7a"),
    "hue2": ("#b2f2bb", "#23602e"),
    "hue3": ("#eebefa", "#6b2f7a"),
    "hue4": ("#ffc9c9", "#7a2f2f"),
    "hue5": ("#99e9f2", "#155e66"),
    "hue6": ("#ffec99", "#6b5c12"),
    "hue7": ("#d0bfff", "#4b3a85"),
    "plain": ("#f1f3f5", "#262b31"),
}
INKS = {"ink": ("#212529", "#f1f3f5"), "soft": ("#5c636a", "#adb5bd")}
STROKES = {"edge": ("#868e96", "#868e96"), "flow": ("#343a40", "#dee2e6")}


def _rules(which: int) -> str:
    """The colours of light (0) or dark (1) pages."""
    fills = [f".{name}{{fill:{colours[which]}}}" for name, colours in {**FILLS, **INKS}.items()]
    lines = [f".{name}{{stroke:{colours[which]}}}" for name, colours in STROKES.items()]
    return "".join([*fills, *lines])


def number(value: float) -> str:
    """A coordinate, of as few digits as it has."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


class Picture:
    """An SVG in the making.

    Args:
        width: In pixels.
        height: In pixels.
        title: What it shows, for who cannot see it.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, corner: float = 0
    ) -> None:
        """A rectangle; `kind` is one or more classes."""
        sizes = zip(("x", "y", "width", "height"), (x, y, width, height), strict=True)
        given = " ".join(f'{name}="{number(value)}"' for name, value in sizes)
        rounded = f' rx="{number(corner)}"' if corner else ""
        self.parts.append(f'<rect class="{kind}" {given}{rounded}/>')

    def text(
        self, x: float, y: float, text: str, kind: str = "ink", size: float = 13, at: str = "start"
    ) -> None:
        """A line of text on the baseline y; `at` is start, middle or end. `mono` and `bold` too."""
        anchor = "" if at == "start" else f' text-anchor="{at}"'
        self.parts.append(
            f'<text class="{kind}" x="{number(x)}" y="{number(y)}" font-size="{number(size)}"'
            f"{anchor}>{escape(text, quote=False)}</text>"
        )

    def line(self, points: list[tuple[float, float]], kind: str = "edge", arrow: bool = False):
        """Straight lines from point to point, with a head at the end if it is an arrow."""
        path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        head = ' marker-end="url(#head)"' if arrow else ""
        self.parts.append(f'<polyline class="{kind} open" points="{path}"{head}/>')

    def svg(self) -> str:
        """The text of the file."""
        width, height = number(self.width), number(self.height)
        style = (
            f"text{{font-family:{FONT}}}.mono{{font-family:{MONO}}}.bold{{font-weight:600}}"
            f".open{{fill:none}}.read{{stroke:#343a40;stroke-width:1.5}}{_rules(0)}"
            f"@media(prefers-color-scheme:dark){{{_rules(1)}}}"
        )
        marker = (
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto-start-reverse"><path class="flow open" '
            'd="M1 1 7 4 1 7"/></marker>'
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" role="img">',
                f"<title>{escape(self.title, quote=False)}</title>",
                f"<style>{style}</style>",
                *(
                    [f"<defs>{marker}</defs>"]
                    if any("#head" in part for part in self.parts)
                    else []
                ),
                f'<rect class="card" width="{width}" height="{height}" rx="8"/>',
                *self.parts,
                "</svg>\n",
            ]
        )
