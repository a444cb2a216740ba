"""The least bytes that the norms' benchmark counts."""

from benchmarks import bench_norm


def test_norm_minimum_bytes():
    assert bench_norm.minimum_bytes(False, 16384, 4096, 2) == 268_451_840
    assert bench_norm.minimum_bytes(True, 16384, 4096, 2) == 402_808_832
