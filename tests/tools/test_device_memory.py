"""When a process gives a GPU's memory back."""

import pytest
import torch

from tests.tools import device_memory


@pytest.mark.parametrize(
    ("used", "reserved", "given_back"),
    [(False, 1 << 40, 0), (True, device_memory.KEPT, 0), (True, device_memory.KEPT + 1, 1)],
)
def test_much_is_given_back(monkeypatch, used, reserved, given_back):
    calls = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: used)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: reserved)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append(None))
    device_memory.give_back()
    assert len(calls) == given_back
