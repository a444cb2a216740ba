"""What maths on shared memory and clusters refuse to compile, and the sentence they say."""

import pytest

from tests.kittens.refusals import errors_of

TILES = "st_bf<64, 32> a; st_fl<64, 64> wide; rt_fl<16, 32> r; rt_fl<64, 32> tall;"
VECTORS = "sv_fl<64> rows; sv_fl<32> cols; rt_fl<64, 32>::col_vec v; semaphore s;"
MISTAKES = {  # the sentence: what makes the mistake, once
    "a map on a shared tile takes shared tiles": "add(a, a, tall);",
    "the shared tiles must have the same rows and columns": "warpgroup::copy(a, wide);",
    "a map on a shared vector takes shared vectors": "mul(rows, rows, v);",
    "the shared vectors must have the same length": "add(rows, rows, cols);",
    "the values of a shared tile's rows or columns are a shared vector": "add_row(a, a, v);",
    "the shared vector must have one value per row of the shared tile": "row_sum(cols, a);",
    "the shared vector must have one value per column of the shared tile": "mul_col(a, a, rows);",
    "the columns of a group's register tile are in several warps": (
        "rt_fl<16, 32>::row_vec sums; warpgroup::col_sum(sums, r);"
    ),
    "make_causal takes a square tile": "warpgroup::make_causal(r, r, 0.0f);",
    "the shared tile must have the columns of the register tile, and the rows": (
        "cluster::load(r, a, 1);"
    ),
    "the shared vector must have the elements of the group's register vectors": (
        "cluster::store(cols, v, 1);"
    ),
    "shared tiles and vectors move as they are": (
        "st_fl<64, 32> b; cluster::copy_async(a, b, s, 1);"
    ),
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The errors of one file that makes all the mistakes."""
    functions = (
        f"void mistake_{i}() {{ {TILES} {VECTORS} {body} }}"
        for i, body in enumerate(MISTAKES.values())
    )
    return errors_of(tmp_path_factory.mktemp("errors"), functions)


@pytest.mark.parametrize("sentence", MISTAKES)
def test_a_mistake_gets_its_sentence(sentence: str, errors: list[str]) -> None:
    assert any(sentence in line for line in errors)


def test_a_mistake_gets_no_other_error(errors: list[str]) -> None:
    others = [line for line in errors if not any(sentence in line for sentence in MISTAKES)]
    assert not others, "\n".join(others)
