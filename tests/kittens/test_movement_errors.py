"""What loads and stores of tiles and vectors refuse to compile, and the sentence they say."""

import pytest

from tests.kittens.refusals import errors_of

MISTAKES = {  # the sentence: the parameters of a function, and its body
    "a register tile moves to and from a shared tile of as many columns": (
        "rt_bf<16, 64>& r, st_bf<16, 32>& s",
        "load(r, s);",
    ),
    "the shared tile must have the rows of the group's register tiles together": (
        "rt_bf<16, 64>& r, st_bf<16, 64>& s",
        "warpgroup::store(s, r);",
    ),
    "the shared vector must have the elements of the group's register vectors together": (
        "rt_fl<16, 64>::col_vec& v, sv<float, 32>& s",
        "warpgroup::load(v, s);",
    ),
    "a register vector moves to and from a shared vector of the same length": (
        "rt_fl<16, 64>::col_vec& v, sv<float, 64>& s",
        "store(s, v);",
    ),
    "load(tile, pointer): the pointer must be to float, bf16 or half": (
        "rt_bf<16, 64>& r, const double* p",
        "load(r, p, 64);",
    ),
    "store(pointer, tile): the pointer must be to float, bf16 or half, not const": (
        "st_bf<16, 64>& s, const bf16* p",
        "store(p, s, 64);",
    ),
    "store(tensor, tile): the tensor is const": (
        "rt_bf<16, 64>& r, gl<const bf16> g",
        "store(g, r, {.r = 1});",
    ),
    "store(tensor, vector): the tensor is const": (
        "rt_fl<16, 64>::row_vec& v, gl<const float> g",
        "store(g, v);",
    ),
    "load_async copies without converting: the pointer must be to the tile's dtype": (
        "st_bf<16, 64>& s, const float* p",
        "load_async(s, p, 64);",
    ),
    "load_async copies without converting: tensor and tile must have one dtype": (
        "st_bf<16, 64>& s, gl<const half> g",
        "load_async(s, g);",
    ),
    "an alignment is a power of two": ("void* p", "shared_allocator<24> al(p);"),
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The sentences of one file that makes all the mistakes."""
    functions = (
        f"void mistake_{i}({parameters}) {{ {body} }}"
        for i, (parameters, body) in enumerate(MISTAKES.values())
    )
    found = errors_of(tmp_path_factory.mktemp("errors"), functions)
    return [line for line in found if "static assertion failed" in line]


@pytest.mark.parametrize("sentence", MISTAKES)
def test_a_mistake_gets_its_sentence(sentence: str, errors: list[str]) -> None:
    assert any(sentence in line for line in errors)


def test_the_sentences_are_all(errors: list[str]) -> None:
    assert not [line for line in errors if not any(sentence in line for sentence in MISTAKES)]
