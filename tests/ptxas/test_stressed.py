"""Each kernel with asynchronous copies is among those that tests/stress repeats on a GPU."""

import re

from build_tools import resources
from tests.ptxas import machine_code
from tests.stress.cases import CASES

# Of each kind: cp.async; bulk and tensor copies, to and from shared memory; st.async.
ASYNCHRONOUS = re.compile(r"\s(LDGSTS|UBLKCP|UBLKRED|UTMALDG|UTMASTG|UTMAREDG|STAS)\b")


def test_kernels_with_asynchronous_copies_are_stressed(toolkit):
    found = {
        resources.short_name(symbol).partition("<")[0]
        for some in machine_code.functions_of(toolkit).values()
        for symbol, sass in some.items()
        if ASYNCHRONOUS.search(sass)
    }
    assert found
    new = found - {each.kernel for each in CASES}
    assert not new, f"{new}: their families' stress.py repeats no problem of theirs"
