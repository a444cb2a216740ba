"""The least bytes that cross_entropy's benchmark counts."""

from benchmarks import bench_cross_entropy


def test_cross_entropy_minimum_bytes():
    assert bench_cross_entropy.minimum_bytes(False, 8192, 50304, 2) == 824_246_272
    assert bench_cross_entropy.minimum_bytes(True, 8192, 50304, 2) == 1_648_427_008
