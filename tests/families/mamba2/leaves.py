"""Calls of mamba2 whose inputs have gradients."""

import thunderkittens
from tests.families.mamba2 import cases
from tests.families.mamba2.cases import Case


def leaves_of(case: Case):
    """The inputs that may have a gradient, as leaves that have one."""
    inputs = cases.make(case)[:9]
    return [None if t is None else t.detach().clone().requires_grad_() for t in inputs]


def call(case: Case, *tensors):
    """The op, of all that `cases.make` makes but the gradients."""
    return thunderkittens.mamba2(*tensors[:5], **cases.keywords(case, *tensors[5:9]))
