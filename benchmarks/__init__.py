"""Benchmarks: one file per kernel family (`bench_<family>.py`), one harness."""
