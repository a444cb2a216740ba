"""What is repeated on a GPU of mlp: products of many tiles and of many steps, both layouts."""

from tests.families.mlp import cases
from tests.families.mlp.cases import BF16, FP16, Case
from tests.stress.problem import Stress

SOME = (
    Case((4096,), 768, 3072, 768, BF16, "tanh"),
    Case((4096,), 768, 3072, 768, BF16, "tanh", transposed=True),
    Case((3000,), 1032, 2056, 1096, FP16),
    Case((1025,), 2048, 1160, 2048, BF16, transposed=True),
    Case((20000,), 64, 264, 72, BF16, "tanh"),
)
CASES = tuple(Stress("linear_gelu", each, cases) for each in SOME)
