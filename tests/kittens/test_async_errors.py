"""What warpgroup products, TMA and the pipeline refuse to compile, and the sentence they say."""

import pytest

from tests.kittens.refusals import errors_of

PRODUCT = "D d; A a; B b; warpgroup::"
MISTAKES = {  # the sentence: the body of a function, with `using` for D, A, B
    "d must be a register tile in row layout": (
        "using D = st_fl<64, 64>; using A = st_bf<64, 64>; using B = A;",
        PRODUCT + "mma_AB(d, a, b);",
    ),
    "d must be rt_fl<16, N>": (
        "using D = rt_bf<16, 64>; using A = st_bf<64, 64>; using B = A;",
        PRODUCT + "mma_AB(d, a, b);",
    ),
    "b must be a swizzled shared tile": (
        "using D = rt_fl<16, 64>; using A = st_bf<64, 64>; "
        "using B = st_bf<64, 64, ducks::st_layout::naive>;",
        PRODUCT + "mma_AB(d, a, b);",
    ),
    "a must be a swizzled shared tile, or a register tile in row layout": (
        "using D = rt_fl<16, 64>; using A = rt_bf<16, 64, ducks::rt_layout::col>; "
        "using B = st_bf<64, 64>;",
        PRODUCT + "mma_AB(d, a, b);",
    ),
    "transposed, a must be a shared tile": (
        "using D = rt_fl<16, 64>; using A = rt_bf<16, 64>; using B = st_bf<16, 64>;",
        PRODUCT + "mm_AtB(d, a, b);",
    ),
    "the left side must have 64 rows": (
        "using D = rt_fl<16, 64>; using A = st_bf<128, 64>; using B = st_bf<64, 64>;",
        PRODUCT + "mma_AB(d, a, b);",
    ),
    "the inner extents of a and b must be equal": (
        "using D = rt_fl<16, 64>; using A = st_bf<64, 32>; using B = st_bf<64, 64>;",
        PRODUCT + "mma_ABt(d, a, b);",
    ),
    "d must have a column per column of the right side": (
        "using D = rt_fl<16, 64>; using A = st_bf<64, 64>; using B = st_bf<64, 128>;",
        PRODUCT + "mma_AB(d, a, b);",
    ),
    "at most 256 columns": (
        "using D = rt_fl<16, 272>; using A = st_bf<64, 64>; using B = st_bf<272, 64>;",
        PRODUCT + "mma_ABt(d, a, b);",
    ),
    "warpgroup product: a and b must hold bf16 or half": (
        "using D = rt_fl<16, 64>; using A = st_fl<64, 64>; using B = A;",
        PRODUCT + "mma_AB(d, a, b);",
    ),
    "a and b must hold the same type": (
        "using D = rt_fl<16, 64>; using A = st_bf<64, 64>; using B = st_hf<64, 64>;",
        PRODUCT + "mma_AB(d, a, b);",
    ),
    "b must be an st_ones<T, K, N>": (
        "using D = rt_fl<16, 80>; using A = rt_bf<16, 64>; using B = st_bf<64, 64>;",
        PRODUCT + "mma_AB_row_sums(d, a, b);",
    ),
    "row sums: a and b must hold bf16 or half": (
        "using D = rt_fl<16, 80>; using A = rt_fl<16, 64>; using B = st_ones<float, 64, 64>;",
        PRODUCT + "mma_AB_row_sums(d, a, b);",
    ),
    "a must be rt<T, 16, K> where b is st_ones": (
        "using D = rt_fl<16, 80>; using A = st_bf<64, 64>; using B = st_ones<bf16, 64, 64>;",
        PRODUCT + "mma_AB_row_sums(d, a, b);",
    ),
    "d must be rt_fl<16, N + 16> where b is st_ones": (
        "using D = rt_fl<16, 64>; using A = rt_bf<16, 64>; using B = st_ones<bf16, 64, 64>;",
        PRODUCT + "mma_AB_row_sums(d, a, b);",
    ),
    "b may have at most 240 columns": (
        "using D = rt_fl<16, 272>; using A = rt_bf<16, 64>; using B = st_ones<bf16, 64, 256>;",
        PRODUCT + "mma_AB_row_sums(d, a, b);",
    ),
    "row_sums_of: d must be rt_fl<16, N + 16>": (
        "",
        "rt_fl<16, 16> d; rt_fl<16, 16>::col_vec sums; row_sums_of(sums, d);",
    ),
    "asynchronous products are of a warpgroup": ("", "group<2>::mma_fence();"),
    "registers move between warpgroups": ("", "group<2>::raise_registers<64>();"),
    "TMA moves swizzled tiles": (
        "",
        "tma_map<st_bf<16, 16, ducks::st_layout::naive>> map; (void)map;",
    ),
    "TMA moves tiles of up to 256 rows": ("", "tma_map<st_bf<272, 16>> map; (void)map;"),
    "a tile with padding is a tensor's only one in a row: tma_sequence_map": (
        "",
        "tma_map<st_bf<16, 80, ducks::st_layout::swizzle_128>> map; (void)map;",
    ),
    "TMA does not convert": ("", "tma_map<st_bf<16, 16>>::of(gl<float>::vector(nullptr, 16));"),
    "TMA moves the tile that the map was made for": (
        "",
        "st_bf<16, 16> tile; tma_map<st_bf<32, 16>> map; semaphore s; "
        "tma::load_async(tile, map, s, {});",
    ),
    "named barriers are numbers 1 to 15": ("", "ordered_barrier<2, 15>::wait(0);"),
    "a ring has at least one stage": ("", "ring<0> stages; (void)stages;"),
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The errors of one file that makes all the mistakes."""
    functions = (
        f"void mistake_{i}() {{ {types} {body} }}"
        for i, (types, body) in enumerate(MISTAKES.values())
    )
    return errors_of(tmp_path_factory.mktemp("errors"), functions)


@pytest.mark.parametrize("sentence", MISTAKES)
def test_a_mistake_gets_its_sentence(sentence: str, errors: list[str]) -> None:
    assert sum(sentence in line for line in errors) == 1


def test_a_mistake_gets_no_other_error(errors: list[str]) -> None:
    others = [line for line in errors if not any(sentence in line for sentence in MISTAKES)]
    assert not others, "\n".join(others)
