"""Mutation of the kernels: one small mistake at a time, each of which the simulator has to find."""
