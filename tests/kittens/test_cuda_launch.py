"""The CUDA side of a launch, with a runtime that the test plays: whose an error is, PDL, L1."""

import os
import subprocess

import pytest

from build_tools import cxx, simulator, toolchain
from build_tools.settings import ROOT, BuildError


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    try:
        toolkit = simulator.headers()
    except BuildError as reason:
        pytest.skip(str(reason))
    built = tmp_path_factory.mktemp("cuda") / "launch"
    words = [toolchain.find_compiler().path, "-std=c++20", "-Wall", "-Wextra", "-Werror"]
    words += ["-Wno-missing-field-initializers", *cxx.INCLUDES, "-isystem", str(toolkit.include)]
    words += ["tests/kittens/host/cuda_launch.cpp", "-o", str(built)]
    subprocess.run(words, cwd=ROOT, check=True)
    return built


@pytest.mark.parametrize("value, word", [(None, "pdl"), ("1", "pdl"), ("0", "none")])
def test_launch(program, value, word):
    environment = {k: v for k, v in os.environ.items() if k != "KITTENS_PDL"}
    if value is not None:
        environment["KITTENS_PDL"] = value
    done = subprocess.run([program, word], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
