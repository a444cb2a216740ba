"""The mistakes of mistakes.py: each must be found."""

from collections.abc import Callable

import pytest

from tests.families.mlp.mistakes import MISTAKES
from tests.mutation.bench import Verdict
from tests.tools.planted import Mistake, check


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake_is_found(judge: Callable[[Mistake], Verdict], mistake: Mistake):
    check(judge(mistake), mistake)
