"""What each family's kernels must do in the simulator, whatever they compute."""

from collections.abc import Callable, Iterable

import pytest
import torch

import thunderkittens
from thunderkittens import _loader
from thunderkittens.testing import memory

needs_simulator = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)
needs_race_mode = pytest.mark.skipif(
    not _loader.SIMULATOR_RACE.is_file(), reason="race mode is not built"
)
POLICIES = (
    {},
    {"policy": "lazy"},
    {"policy": "random", "seed": 1},
    {"policy": "random", "seed": 2},
)
Run = Callable[[], Iterable[torch.Tensor]]


def check_policies_agree(run: Run, **always: object) -> None:
    """The order of threads and blocks changes no bit of what `run` gives; nor does a repetition."""
    with thunderkittens.backend("simulator", threads=1, **always):
        want = tuple(run())
    for options in POLICIES:
        _check_same(run, want, **options, **always)


def check_no_races(run: Run, **always: object) -> None:
    """Race mode has nothing to report, and the bits are those without it."""
    with thunderkittens.backend("simulator", **always):
        want = tuple(run())
    _check_same(run, want, policy="random", seed=3, race=True, **always)


def _check_same(run: Run, want: tuple[torch.Tensor, ...], **options: object) -> None:
    with thunderkittens.backend("simulator", **options):
        for got, first in zip(run(), want, strict=True):
            assert memory.bits_equal(got, first), options
