"""What is repeated on a GPU: of each kernel with asynchronous copies, problems that fill its pipes.

They are the CASES of the families' stress.py. Rows begin off 16 bytes where a kernel takes such
rows: they are stored element by element, which fills the memory pipe, and is when loads come late.
"""

from tests.stress.problem import Stress
from tests.tools import families

CASES: tuple[Stress, ...] = tuple(
    problem for module in families.each("stress.py") for problem in module.CASES
)
