"""The least bytes that rotary's benchmark counts."""

from benchmarks import bench_rotary


def test_rotary_minimum_bytes():
    assert bench_rotary.SHAPES[0].minimum_bytes() == 2 * 268_435_456 + 1_048_576
