"""The C++ tests of the tile layer, the seam and the simulator: each `test_*.cu` is a program.

Built by the C++ compiler, a program runs in the simulator, once under each policy; built by nvcc,
it runs on the GPU. `tests/kittens/sim` tests the simulator itself, and has no GPU side.
"""

import os
import subprocess
from pathlib import Path

import pytest

from build_tools import cuda, simulator
from build_tools.settings import BuildError

FOLDER = Path(__file__).parent
PROGRAMS = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("test_*.cu"))
POLICIES = ["eager", "lazy", "random:1", "random:2"]
TIMEOUT_SECONDS = 120


def run(program: Path, name: str, **environment: str) -> None:
    """Runs a program, and fails with what it printed unless all its tests pass."""
    done = subprocess.run(
        [program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    setting = "".join(f"{key}={value} " for key, value in environment.items())
    failed = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
    assert done.returncode == 0, "\n".join(
        [f"{setting}{program} ({name}) exits with {done.returncode}:", *failed, done.stderr]
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_the_simulator(name: str, policy: str) -> None:
    try:
        simulator.headers()
    except BuildError as reason:
        pytest.skip(str(reason))
    run(simulator.build_test(FOLDER / name), name, KITTENS_SIM=policy)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in PROGRAMS if not name.startswith("sim/")])
def test_on_the_gpu(name: str) -> None:
    run(cuda.build_test(FOLDER / name), name)
