"""The pictures of docs/tiles.md are those of the tile layer: their formulas are the types' own."""

import subprocess

import pytest

from build_tools import cxx, figures, simulator, toolchain
from build_tools.settings import ROOT, BuildError

TILE = "st<bf16, 64, 64>"
HEAD = "#include <kittens.cuh>\nusing namespace kittens;\nusing namespace ducks::rv_layout;\n"


def assertions() -> list[str]:
    """What the pictures show, as conditions of C++."""
    found = []
    for lane in range(32):
        for pair in range(4):
            row, column = figures.row_of(lane, pair), figures.column_of(lane, pair)
            found.append(f"ortho::first({lane}) + 8 * ({pair} % 2) == {row}")
            found.append(f"align::first({lane}) + 8 * ({pair} / 2) == {column}")
        found.append(f"runs<4>::first({lane}) == {figures.run_of(lane, 4)}")
    for row in range(16):
        for piece in range(8):
            place = figures.place_of(row, piece)
            found.append(f"{TILE}::index({row}, {8 * piece}) == {64 * row + 8 * place}")
    same = "std::same_as<rt_fl<16, 16>::{}_vec::layout, {}>"
    return [*found, same.format("col", "ortho"), same.format("row", "align")]


def messages(conditions: list[str], source) -> str:
    try:
        toolkit = simulator.headers()
    except BuildError as reason:
        pytest.skip(str(reason))
    source.write_text(HEAD + "".join(f"static_assert({text});\n" for text in conditions))
    defines = ["-DKITTENS_TARGET=simulator", "-isystem", str(toolkit.include)]
    command = [toolchain.find_compiler().path, "-std=c++20", "-fsyntax-only", "-x", "c++"]
    command += ["-Wno-unknown-pragmas", *cxx.INCLUDES, *defines, str(source)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stderr


def test_pictures_are_the_tile_layers(tmp_path):
    conditions = assertions()
    wrong = f"{TILE}::index(1, 0) == 64"
    errors = messages([*conditions, wrong], tmp_path / "figures.cpp").count("error: ")
    assert errors == 1, "only what is wrong on purpose, the swizzle's second row"
