"""A fuzz of every public op: seeded calls against float64, judged by their roundings alone.

    python -m tests.fuzz --seconds 60 --device cuda

A case is a function of its op and seed. It shares nothing with `thunderkittens.testing`: references
and bounds are derived a second time (arithmetic.py here, and each family's fuzz.py), so that a
mistake in one of them does not hide in the other.

A family has a file `tests/families/<family>/fuzz.py`, or several `fuzz_*.py`: `OPS`, the ops that
it is about, and `make(draw, op)`, which draws a call, its reference and its bounds (case.py).
"""
