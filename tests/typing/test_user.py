"""The user's script does at run time what type checkers say that it does."""

import pytest
import torch

from tests.typing import user


def test_what_is_right_runs():
    user.main()


def test_what_is_wrong_is_refused():
    for call in user.mistakes(torch.ones(2, 8)):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            call()
