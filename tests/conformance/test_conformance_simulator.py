"""The simulator answers as the hardware did, whatever its policy; each function is asked."""

import pytest

from build_tools import simulator
from build_tools.settings import BuildError
from tests.tools import conformance

MOST_BYTES = 1 << 20  # of the golden files


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, conformance.Records]]:
    """The records, by policy and topic."""
    try:
        simulator.headers()
    except BuildError as reason:
        pytest.skip(str(reason))
    built = conformance.build("simulator")
    return {policy: conformance.ask_all(built, policy) for policy in conformance.POLICIES}


@pytest.mark.parametrize("policy", conformance.POLICIES)
@pytest.mark.parametrize("topic", conformance.topics())
def test_the_simulator_answers_as_the_hardware(topic, policy, answers):
    if not conformance.golden_path(topic).is_file():
        pytest.skip(
            f"no hardware has been asked about {topic} yet: see tests/conformance/README.md"
        )
    found = conformance.differences(topic, answers[policy][topic])
    assert not found, "\n".join(found)


def test_each_function_of_the_seam_is_asked():
    functions = conformance.seam_functions()
    assert len(functions) > 70
    assert not sorted(functions - conformance.called_functions())


def test_golden_files_belong_to_programs_and_are_small():
    files = sorted(conformance.GOLDEN.glob("*"))
    assert {path.stem for path in files} <= set(conformance.topics())
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
