"""Calls that work, of all ops, made from the tables that describe their arguments."""

import inspect

import torch

import thunderkittens
from tests.tools import families
from thunderkittens import _C

OF_BATCHES = ("seqused_k", "leftpad_k")  # which packed sequences do not have
SIZES = {"*": 3, "N": 8, "O": 8, "B": 2, "Sq": 3, "Sk": 5, "Hq": 4, "Hk": 2, "D": 8, "Dv": 6}
# Phi: based_features of D
SIZES |= {
    "3": 3,
    "Tq": 5,
    "Tk": 7,
    "B1": 3,
    "N1": 9,
    "M1": 5,
    "T": 16,
    "Phi": 45,
    "F2": 8,
    "W64": 64,
}
NUMBERS = {
    "eps": 1e-5,
    "beta1": 0.9,
    "beta2": 0.999,
    "dropout_p": 0.5,
    "scale": 0.5,
    "softcap": 0.0,
    "max_seqlen_q": 3,
    "max_seqlen_k": 4,
}
OTHER_SIZE = 4  # of a dimension that a new op brings along
TABLES = {f"{t['op']} {t['variant']}".strip(): t for t in _C.argument_tables()}
CHECKED_BY_OP = {  # tensors that the tables do not describe
    op: arguments
    for module in families.each("calls.py")
    for op, arguments in getattr(module, "CHECKED_BY_OP", {}).items()
}
MORE_ARGUMENTS = {  # that a function has and its op's table lacks
    op: arguments
    for module in families.each("calls.py")
    for op, arguments in getattr(module, "MORE_ARGUMENTS", {}).items()
}


def good(table) -> dict:
    """Arguments that the op accepts, by name."""
    return {a["name"]: accepted(a) for a in arguments_in(table)} | CHECKED_BY_OP.get(
        table["op"], {}
    )


def arguments_in(table):
    """Those that its calls may have."""
    packed = table["variant"] == "packed"
    return [a for a in table["arguments"] if not (packed and a["name"] in OF_BATCHES)]


def accepted(argument):
    """A value that the table allows."""
    if argument["kind"] == "tensor":
        shape = [SIZES.get(name, OTHER_SIZE) for name in argument["shape"].split(",")]
        if argument["dtype"] == "index":
            return torch.zeros(shape, dtype=torch.int32)
        if argument["dtype"] == "same_or_float8":  # which may have a scale
            return torch.randn(shape).to(torch.float8_e4m3fn)
        return torch.randn(shape)
    if argument["kind"] == "boolean":
        return False
    if argument["kind"] == "word":
        return argument["words"][-1]
    default = max(argument["minimum"], 0) + 1  # an allowed number, if a new op brings one along
    return NUMBERS.get(argument["name"], int(default) if argument["kind"] == "integer" else default)


def arguments_of(op: str) -> dict:
    """Of a call that works, those that the function has."""
    parameters = inspect.signature(getattr(thunderkittens, op)).parameters
    more = MORE_ARGUMENTS.get(op, {})
    return {name: value for name, value in good(TABLES[op]).items() if name in parameters} | more
