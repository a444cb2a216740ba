"""Calls of attention's backward in the simulator, of each of its kernels."""

from tests.families.attention import cases, heads, layouts
from tests.families.attention.cases import BF16, FP16, FP32, Case


def packed(rows: tuple[int, ...], keys: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """A case's keywords of packed sequences."""
    return {"cu_seqlens_q": rows, "cu_seqlens_k": keys}


# Where rows see more keys than 384, or with heads above 64 more than 640, dq is added up
# (attention_backward_layout); with softcaps, always.
MANY_KEYS = [
    Case(1, 450, False, 1, 64),
    Case(129, 512, False, 2, 64, FP16, key_heads=2, batch=2),
    Case(140, 500, True, 2, 64, sinks=FP32),
    Case(70, 530, True, 1, 40, value_dim=64, window_left=430),
    Case(200, 60 + 513, True, 1, 64, layout="shifted"),
    Case(64, 705, False, 2, 128, FP16, sinks=FP32),
    Case(70, 768, True, 2, 96, key_heads=2, value_dim=128),
    Case(65, 769, False, 1, 80, FP16, window_left=700, window_right=20),
    Case(70, 700, True, 1, 72, value_dim=80, sinks=FP32),
    Case(129, 705, False, 2, 96, FP16),
    Case(90, 1000, True, 2, 64, **packed((2, 40, 90), (0, 449, 1000)), sinks=FP32),
]
# Tiles have 128 keys, and 128 rows or, of heads wider than 64, 64; of those above 128 they have 64
# keys: lengths around them, each width and option.
ALL = [
    *(Case(n, n, causal, 1, 64) for n in (1, 64, 127, 128, 129) for causal in (False, True)),
    *(Case(n, n, causal, 1, 128, FP16) for n in (63, 64, 65, 129) for causal in (False, True)),
    Case(65, 260, True, 2, 64, FP16, key_heads=2, batch=2),
    Case(70, 200, False, 4, 128, batch=2),
    Case(130, 257, True, 3, 80, value_dim=40),
    *(Case(n, m, n < m, 2, d, value_dim=dv) for n, m, d, dv in heads.BETWEEN_TILES),
    Case(100, 130, False, 1, 24, FP16, value_dim=128),
    Case(200, 60, True, 2, 64),  # rows that see no key
    Case(200, 60, True, 1, 128, FP16, sinks=FP32),
    Case(150, 300, False, 1, 64, window_left=0, window_right=0),
    Case(300, 300, True, 1, 64, window_left=70),
    Case(140, 290, False, 2, 128, window_left=20, window_right=130, sinks=BF16),
    Case(70, 90, True, 2, 64, key_heads=3, batch=2, sinks=FP32),  # more tiles than blocks
    *(Case(65, 65, True, 2, 64, batch=2, layout=layout) for layout in layouts.LAYOUTS),
    *(Case(70, 140, True, 2, 64, regime=regime) for regime in cases.REGIMES[1:]),
    *(Case(70, 70, scale=scale) for scale in (1e-30, 3.0)),
    *(Case(n, n, causal, 1, 256) for n in (1, 63, 64, 65) for causal in (False, True)),
    Case(65, 130, True, 2, 192, FP16, key_heads=2, batch=2),
    Case(70, 129, True, 1, 192, value_dim=128),
    Case(66, 70, False, 2, 136, FP16, value_dim=40, sinks=FP32),
    Case(130, 60, True, 1, 256, sinks=BF16),
    Case(70, 200, False, 1, 40, value_dim=256, window_left=20, window_right=30),
    # Softcaps that are small or not have another tanh each.
    *(Case(70, 140, True, 2, softcap=cap, regime="peaked") for cap in (20.0, 100.0)),
    *(Case(66, 130, False, 1, 128, FP16, softcap=cap, sinks=FP32) for cap in (20.0, 100.0)),
    *(Case(65, 70, True, 1, 256, softcap=cap, window_left=40) for cap in (20.0, 100.0)),
    # Packed: sequences without rows, without keys, without both; with more rows than keys; that
    # end with a tile; and rows and keys of no sequence, before them and behind.
    Case(300, 310, True, 2, **packed((0, 0, 130, 258, 300), (0, 64, 64, 192, 310))),
    Case(200, 150, True, 2, 128, FP16, **packed((3, 70, 70, 190), (5, 25, 25, 140)), sinks=FP32),
    Case(210, 260, False, 1, 40, **packed((0, 100, 200), (2, 130, 258)), window_left=30),
    Case(150, 140, True, 2, 256, key_heads=2, **packed((1, 66, 150), (0, 20, 139)), sinks=BF16),
    Case(150, 150, False, 1, 192, FP16, **packed((0, 0, 64, 150), (0, 1, 65, 150)), value_dim=128),
    Case(100, 120, True, 2, **packed((0, 50, 100), (0, 20, 120)), softcap=20.0),
    Case(20, 30, **packed((7,), (9,))),  # no sequence at all
    *MANY_KEYS,
]
OF_EACH_KIND = [
    Case(193, 193, False, 1, 64, BF16),
    Case(129, 193, True, 2, 128, FP16, sinks=FP32),
    Case(140, 200, False, 1, 80, BF16, window_left=30, window_right=5),
    Case(130, 140, True, 2, 256, BF16, sinks=FP32),
    Case(66, 130, False, 1, 192, FP16, value_dim=128, softcap=100.0),
    Case(70, 130, True, 2, 64, FP16, softcap=20.0),
    Case(200, 310, True, 2, 64, **packed((2, 2, 130, 200), (0, 64, 64, 300)), sinks=FP32),
    Case(140, 150, True, 1, 256, **packed((0, 30, 140), (1, 20, 150))),
    Case(97, 140, True, 1, 96, FP16),
    Case(70, 140, True, 2, 192, BF16, value_dim=128, sinks=FP32),
    MANY_KEYS[2],
    MANY_KEYS[8],
    MANY_KEYS[-1],
]
