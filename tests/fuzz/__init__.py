"""A fuzz of every public op: seeded calls against float64, judged by their roundings alone.

    python -m tests.fuzz --seconds 60 --device cuda

A case is a function of its op and seed. It shares nothing with `thunderkittens.testing`: references
and bounds are derived here a second time (arithmetic.py, and one file per family), so that a
mistake in one of them does not hide in the other.

A new family is one file: `OPS`, the ops that it is about, and `make(draw, op)`, which draws a call,
its reference and its bounds (case.py). It is found by name.
"""
