"""The checks that families share fail where they must."""

from itertools import count

import pytest
import torch

from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)

pytestmark = [needs_simulator, needs_race_mode]


@pytest.mark.parametrize("check", [check_policies_agree, check_no_races])
def test_another_bit_is_noticed(check):
    check(lambda: (torch.ones(2), torch.zeros(3)))
    numbers = count()
    with pytest.raises(AssertionError, match="policy|{}"):
        check(lambda: (torch.tensor(float(next(numbers))),))
    with pytest.raises(ValueError, match="shorter|longer"):
        check(lambda: [torch.ones(1)] * next(numbers))
