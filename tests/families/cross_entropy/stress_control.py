"""The control of the stress: without this fence, a bulk copy may overtake loads.

The copy then overwrites a chunk that is still being read: gradients are wrong now and then, and the
stress must see it.
"""

from tests.tools.planted import Mistake

SOURCE = "csrc/kernels/cross_entropy/cross_entropy_sm90"
MISTAKE = Mistake(
    name="without_fence",
    right="    arch::fence_async_proxy();\n",
    wrong="",
    found_as="",
    file="kittens/pipeline/ring.cuh",
)
ONLY = "cross_entropy"  # the problems that show it
