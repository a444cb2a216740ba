"""What tests and benchmarks of kernels need: derived tolerances, poisoned memory, timing."""

from thunderkittens.testing import memory, timing, tolerance
from thunderkittens.testing.memory import Poisoned, check_memory
from thunderkittens.testing.tolerance import assert_close

__all__ = ["Poisoned", "assert_close", "check_memory", "memory", "timing", "tolerance"]
