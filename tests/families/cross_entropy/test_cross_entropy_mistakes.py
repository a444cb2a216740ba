"""The mistakes of mistakes.py: each must be found."""

from collections.abc import Callable

import pytest

from tests.families.cross_entropy.mistakes import MISTAKES
from tests.mutation import targets
from tests.mutation.bench import Bench, Verdict
from tests.tools.planted import Mistake, check


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake_is_found(judge: Callable[[Mistake], Verdict], mistake: Mistake):
    check(judge(mistake), mistake)


def test_the_kernels_as_they_are(bench: Bench):
    file = "kernels/cross_entropy/cross_entropy_row.cuh"
    assert not bench.judge_text(file, targets.text(file), targets.TARGETS[file]).noticed
