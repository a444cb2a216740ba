"""`import thunderkittens` costs little more than torch: it brings no module that is not its own.

The compiler, sympy and the rest take a second to import; a program that needs them pays for them
there. Modules are counted, not seconds, which depend on the machine.
"""

import os
import subprocess
import sys

from thunderkittens._loader import PACKAGE

OTHERS = """
import sys
import torch
before = set(sys.modules)
import thunderkittens
assert thunderkittens.nn.LayerNorm and thunderkittens.layer_norm
mine = {"thunderkittens"} | set(sys.stdlib_module_names)
print(*sorted(name for name in set(sys.modules) - before if name.split(".")[0] not in mine))
"""


def test_it_imports_nothing_of_others():
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", OTHERS]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_others_can_still_import_setuptools():
    """Its hook takes a search for pip for pip's own start (Inductor imports setuptools later)."""
    program = "import torch, thunderkittens, setuptools._distutils"
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
