"""attention_decode's and cache_append's kernels, lane by lane on the CPU: the others' lists."""

import dataclasses
import json
import re

import pytest
import torch

import thunderkittens
from tests.families.attention_decode import append_cases, cases
from tests.families.attention_decode.append_cases import AppendCase
from tests.families.attention_decode.cases import FP8, FP16, FP32, Case
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = needs_simulator

ALL = [
    *cases.shapes(),
    *cases.pages(),
    *cases.options(),
    *cases.padded(),
    *cases.paired(),
    *cases.wide(),
    *cases.narrow_caches(),
]
SOME = [
    Case((70, 0, 200), 5, 8, 2, page=24, sinks=FP32),
    Case((300, 33), 1, 4, 1, 128, dtype=FP16, window=(100, None)),
    Case((300, 33), 1, 4, 1, 128, cache=FP8),
    Case((300, 33), 1, 4, 1, 96, page=24),
    Case((300, 33), 1, 4, 1, 80),
    Case((300, 33), 1, 8, 2, 80, page=64, table=4096),
    Case((300, 33), 1, 4, 1, 104, dtype=FP16, page=64),
    Case((300, 33), 1, 4, 1, 80, cache=FP8),
    Case((300, 33), 1, 4, 1, 256, page=24),
    Case((70,) * 40, 1, 2, 2, 192),
    Case((300, 33), 1, 4, 1, 160, cache=FP8, dtype=FP16),
]
SOME_APPENDED = [
    AppendCase(tokens=3, page=16, table=FP32),
    AppendCase(head_dim=7, rotated=4),
    AppendCase(cache=FP8),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_decode_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = cases.make(case)
    before = _C.launch_counts()["attention_decode"]
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert _C.launch_counts()["attention_decode"] > before
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("case", append_cases.all_cases(), ids=str)
def test_append_against_float64(case):
    """Right, and within its tensors; by our kernel."""
    inputs = append_cases.make(case)
    before = _C.launch_counts()["cache_append"]

    def run(*tensors):
        return append_cases.run_case(case, append_cases.copied(tensors))

    with thunderkittens.backend("simulator"):
        results = check_memory(run, *inputs)
    assert (_C.launch_counts()["cache_append"] > before) == (inputs[0].numel() > 0)
    append_cases.check_case(case, inputs, results)


PAIRED = Case((200, 5), 1, 8, 2, 80, page=64, table=2048)


@pytest.mark.parametrize(
    ("case", "key_heads"),
    [
        (PAIRED, 2),
        (dataclasses.replace(PAIRED, table=2047), 1),
        (dataclasses.replace(PAIRED, layout="heads_first"), 1),
        (dataclasses.replace(PAIRED, key_heads=1, table=4096), 1),
        (dataclasses.replace(PAIRED, head_dim=96), 1),
        (dataclasses.replace(PAIRED, head_dim=64), 1),
    ],
    ids=str,
)
def test_key_heads_that_a_turn_has(case, key_heads, tmp_path):
    """Two of large caches, whose rows are side by side and no whole units of memory.

    And its queries are 8 rows of a product, or 16 if they are more.
    """
    inputs = cases.make(case)
    with thunderkittens.backend("simulator", facts=tmp_path / "facts.json"):
        cases.run_case(case, inputs)
    (launch,) = json.loads((tmp_path / "facts.json").read_text())["launches"]
    ((heads, rows),) = re.findall(r"(\d), (\d+), \d+>", launch["instance"])
    assert int(heads) == key_heads
    assert int(rows) == (8 if case.tokens * case.heads // case.key_heads <= 8 else 16)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_policies_agree(case):
    inputs = cases.make(case)
    check_policies_agree(lambda: cases.run_case(case, inputs))


@needs_race_mode
@pytest.mark.parametrize("case", SOME, ids=str)
def test_no_races(case):
    inputs = cases.make(case)
    check_no_races(lambda: cases.run_case(case, inputs))


@needs_race_mode
@pytest.mark.parametrize("case", SOME_APPENDED, ids=str)
def test_no_races_of_appends(case):
    inputs = append_cases.make(case)
    check_no_races(lambda: append_cases.run_case(case, append_cases.copied(inputs)))


def test_append_then_decode_with_one_seqlens():
    """What is appended is seen by its own token at once: the same seqlens go to both."""
    q, k, v = torch.randn(3, 2, 3, 4, 64, dtype=FP16)
    caches = torch.zeros(2, 2, 40, 4, 64, dtype=FP16)
    seqlens = torch.tensor([3, 40], dtype=torch.int32)
    with thunderkittens.backend("simulator"):
        thunderkittens.cache_append(k, v, *caches, seqlens)
        o = thunderkittens.attention_decode(q, *caches, seqlens=seqlens)
        want = thunderkittens.attention(q[:1], k[:1], v[:1], causal=True)
    torch.testing.assert_close(o[:1], want, atol=2e-3, rtol=2e-3)
