"""Draws the pictures of docs/tiles.md, from the formulas that tests compare with the tile layer's.

`python -m build_tools figures` writes docs/figures/*.svg.
"""

from pathlib import Path

from build_tools.settings import ROOT
from build_tools.svg import Picture

FOLDER = ROOT / "docs" / "figures"
HUES = 8
STAGES, ROUNDS = 3, 2  # of the ring's picture


def row_of(lane: int, pair: int) -> int:
    """The row of a lane's pair in a base tile of row layout."""
    return lane // 4 + 8 * (pair % 2)


def column_of(lane: int, pair: int) -> int:
    """The column of the first element of a lane's pair."""
    return lane % 4 * 2 + 8 * (pair // 2)


def place_of(row: int, piece: int) -> int:
    """Where a piece of 16 bytes stands in its row of 128 bytes of a swizzled tile."""
    return piece ^ (row % 8)


def run_of(lane: int, run: int) -> int:
    """The first element of a lane in a vector of the layout runs<run>."""
    return lane * run


def register_tile() -> str:
    """A base tile in row layout, and beside it the vectors of its rows and columns."""
    cell, left, top = 30, 64, 74
    side = 16 * cell
    picture = Picture(
        left + side + 112, top + side + 82, "Which lane holds which element of a tile"
    )
    picture.text(
        16, 26, "A 16 × 16 base tile in row layout: the number is the lane", "ink bold", 14
    )
    for lane in range(32):
        for pair in range(4):
            x, y = left + column_of(lane, pair) * cell, top + row_of(lane, pair) * cell
            picture.rect(x + 1, y + 1, 2 * cell - 2, cell - 2, f"hue{lane // 4}", corner=3)
            picture.text(x + cell, y + 20, str(lane), at="middle")
    for index in range(16):
        middle = index * cell + cell / 2
        picture.text(left + middle, top - 10, str(index), "soft", 11.5, "middle")
        picture.text(left - 10, top + middle + 4, str(index), "soft", 11.5, "end")
    picture.text(left, top - 30, "column", "soft", 12)
    picture.text(16, top - 10, "row", "soft", 12)
    middle = side / 2
    for x, y, dx, dy in ((left + middle, top, 0, side), (left, top + middle, side, 0)):
        picture.line([(x, y), (x + dx, y + dy)], "flow")
    for pair in range(4):
        right, below = pair // 2, pair % 2
        x = left + (right + 0.5) * middle
        y = top + (below + 0.5) * middle
        picture.rect(x - 23, y - 8, 46, 16, "card", corner=8)
        picture.text(x, y + 4, f"pair {pair}", "soft bold", 11.5, "middle")
    picture.text(left + side + 12, top - 30, "col_vec", "ink bold", 12)
    picture.text(left + side + 12, top - 12, "held by lanes", "soft", 11.5)
    for row in range(16):
        lanes = [lane for lane in range(32) if row_of(lane, 0) == row % 8]
        y = top + row * cell
        picture.rect(left + side + 12, y + 2, 80, cell - 4, f"hue{lanes[0] // 4}", corner=3)
        picture.text(left + side + 52, y + 20, f"{lanes[0]} – {lanes[-1]}", at="middle", size=12)
    y = top + side + 12
    for first in range(0, 16, 2):
        lanes = [lane for lane in range(32) if column_of(lane, 0) == first % 8]
        picture.rect(left + first * cell + 1, y, 2 * cell - 2, 34, "plain", corner=3)
        text = f"{lanes[0]}, {lanes[1]} …"
        picture.text(left + (first + 1) * cell, y + 15, text, at="middle", size=11.5)
        picture.text(left + (first + 1) * cell, y + 29, str(lanes[-1]), at="middle", size=11.5)
    picture.text(left, y + 54, "row_vec: each pair of columns, by eight lanes", "ink bold", 12)
    return picture.svg()


def swizzle() -> str:
    """Eight rows of a chunk that is 128 bytes wide: which piece stands where."""
    cell, height, left, top = 62, 34, 62, 84
    picture = Picture(left + 8 * cell + 20, top + 8 * height + 66, "The swizzle of shared tiles")
    picture.text(16, 26, "Rows of 128 bytes: which piece of 16 bytes stands where", "ink bold", 14)
    picture.text(left, top - 32, "place (banks)", "soft", 12)
    for place in range(8):
        banks = f"{place} ({4 * place}–{4 * place + 3})"
        picture.text(left + place * cell + cell / 2, top - 10, banks, "soft", 11.5, "middle")
    for row in range(8):
        picture.text(left - 12, top + row * height + 22, f"row {row}", "soft", 12, "end")
        for piece in range(8):
            x, y = left + place_of(row, piece) * cell, top + row * height
            picture.rect(x + 1.5, y + 1.5, cell - 3, height - 3, f"hue{piece}", corner=3)
            bold = " bold" if piece == 0 else ""
            picture.text(x + cell / 2, y + 22, str(piece), f"ink{bold}", 13, "middle")
    y = top + 8 * height + 24
    picture.text(
        16, y, "One colour is one column of pieces: in eight rows it meets all eight", size=12.5
    )
    picture.text(
        16, y + 18, "groups of banks, and so does one row. Neither has a conflict.", size=12.5
    )
    return picture.svg()


def vector_runs() -> str:
    """The first elements of a vector in the layout runs<4>."""
    run, cell, left, top = 4, 19, 20, 58
    shown = [0, 1, 2, 3, 31, 32]  # 32: the lanes from the start again
    width = left + len(shown) * (run * cell + 14) + 10
    picture = Picture(width, 132, "Which lane holds which elements of a vector from memory")
    picture.text(16, 26, "rv<float, 256, runs<4>>: 16 bytes a lane and access", "ink bold", 14)
    for index, lane in enumerate(shown):
        x, first = left + index * (run * cell + 14), run_of(lane, run)
        picture.rect(x, top, run * cell, 34, f"hue{lane % 32 % HUES}", corner=3)
        picture.text(x + run * cell / 2, top + 22, f"{first} – {first + run - 1}", at="middle")
        picture.text(x + run * cell / 2, top + 52, f"lane {lane % 32}", "soft", 12, "middle")
        if lane == 31:
            picture.text(x - 7, top + 22, "…", at="middle")
    return picture.svg()


def ring() -> str:
    """Three stages of a ring in time: who waits for what."""
    step, left, top, height = 76, 92, 76, 44
    slots = STAGES * ROUNDS
    width = left + (slots + 2) * step + 16
    picture = Picture(
        width, top + (STAGES + 2) * (height + 16) + 84, "A ring of three stages in time"
    )
    picture.text(16, 26, "A ring of three stages, six tiles", "ink bold", 14)
    picture.text(
        16, 46, "Time runs to the right. An arrow is what the waiting side waits for.", "soft", 12.5
    )
    lines = {"producer": top, "consumers": top + (STAGES + 1) * (height + 16)}
    for stage in range(STAGES):
        lines[f"stage {stage}"] = top + (stage + 1) * (height + 16)
    for name, y in lines.items():
        picture.text(16, y + height / 2 + 4, name, "ink bold", 12.5)
        picture.line([(left, y + height + 8), (width - 16, y + height + 8)])
    for tile in range(slots):
        stage, phase = tile % STAGES, tile // STAGES
        y, hue = lines[f"stage {stage}"], f"hue{tile % HUES}"
        # A consumer takes a step for each tile, from the second on; its stage is free a step later.
        begin = 0.45 * tile if not phase else tile - STAGES + 2.25
        read = tile + 1.2
        asked, multiplied = left + begin * step, left + read * step
        picture.rect(asked, lines["producer"], 0.4 * step, height, hue, corner=3)
        picture.text(asked + 0.2 * step, lines["producer"] + 26, str(tile), at="middle", size=12)
        picture.rect(asked + 0.2 * step, y, multiplied - asked - 0.2 * step, height, hue, corner=3)
        picture.rect(multiplied, y, 0.98 * step, height, f"{hue} read", corner=3)
        picture.text(asked + 0.2 * step + 5, y + 18, f"TMA {tile}", size=11.5)
        picture.text(multiplied + 5, y + 18, "read", size=11.5)
        picture.text(multiplied + 5, y + 34, f"full: {phase}", "ink mono", 10.5)
        picture.rect(multiplied, lines["consumers"], 0.98 * step, height, hue, corner=3)
        text = f"product {tile}"
        picture.text(multiplied + 0.49 * step, lines["consumers"] + 26, text, at="middle", size=12)
        if phase:
            freed = left + (tile - STAGES + 1.2 + 0.98) * step
            picture.line(
                [(freed, y), (asked + 0.04 * step, lines["producer"] + height)], "flow", arrow=True
            )
            picture.text(asked + 2, lines["producer"] - 6, f"empty: {phase ^ 1}", "ink mono", 10.5)
    y = lines["consumers"] + height + 30
    for text in (
        "full: n — the consumers wait for the phase of parity n: the copy's bytes have come.",
        "empty: n — the producer waits for the phase of parity n: all consumers have arrived.",
        "In the first round the producer waits for nothing: its three loads are out at once.",
    ):
        picture.text(16, y, text, size=12.5)
        y += 18
    return picture.svg()


PICTURES = {
    "register_tile": register_tile,
    "swizzle": swizzle,
    "vector_runs": vector_runs,
    "ring": ring,
}


def write() -> list[Path]:
    """Writes every picture.

    Returns:
        The files.
    """
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw())
    return [FOLDER / f"{name}.svg" for name in PICTURES]
