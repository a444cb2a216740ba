"""Wrong Python types, and keywords of other libraries, end in a sentence of ours."""

import inspect
import re

import pytest
import torch

import configs
import thunderkittens
from tests.ops.described import arguments_of
from tests.tools import families
from thunderkittens.ops import _mistakes

OPS = [op for kernel in configs.KERNELS for op in kernel.ops]
PYTHONS_OWN = (  # of which Python asks whether they are true
    "inplace",
    "return_lse",
    "output_final_state",
    "return_final_state",
    "normalize",
)
ARGUMENTS = [
    (op, name)
    for op in OPS
    for name, parameter in inspect.signature(getattr(thunderkittens, op)).parameters.items()
    if parameter.kind is not parameter.VAR_KEYWORD and name not in PYTHONS_OWN
]
WRONG_TYPES = {
    sentence: call
    for module in families.each("calls.py")
    for sentence, call in getattr(module, "WRONG_TYPES", {}).items()
}
KEYWORDS = [(op, name) for op in OPS for name in _mistakes._ELSEWHERE.get(op, {})]


def check_message(message: str) -> None:
    for quoted in ("PYBIND11", "Declaration", "thunderkittens::", "\n"):
        assert quoted not in message, message


@pytest.mark.parametrize(("op", "name"), ARGUMENTS)
def test_every_argument(op, name):
    given = {**arguments_of(op), name: object()}
    if name == "max_seqlen":
        given["cu_seqlens"] = torch.tensor([0, 2])
    with pytest.raises((TypeError, ValueError)) as raised:
        getattr(thunderkittens, op)(**given)
    message = str(raised.value)
    assert re.match(rf"{op}: {name} must be .*, got .*object", message), message
    assert raised.value.__suppress_context__ or raised.value.__context__ is None
    check_message(message)


def test_every_argument_is_here():
    assert len(ARGUMENTS) > 5 * len(OPS)


@pytest.mark.parametrize("sentence", WRONG_TYPES)
def test_sentence(sentence):
    with pytest.raises(TypeError) as raised:
        WRONG_TYPES[sentence]()
    message = str(raised.value)
    assert message.startswith(sentence), message
    assert len(message) < len(sentence) + 60  # of a value that is not quoted here
    check_message(message)


def test_long_values_are_not_shown():
    with pytest.raises(TypeError, match="^layer_norm: x must be a tensor, got list$"):
        thunderkittens.layer_norm([float(i) for i in range(1000)])


@pytest.mark.parametrize(("op", "keyword"), KEYWORDS)
def test_keyword_of_another_library(op, keyword):
    """The advice names arguments that the function has."""
    function = getattr(thunderkittens, op)
    start = f"{op}() got an unexpected keyword argument {keyword!r}: "
    with pytest.raises(TypeError) as raised:
        function(**arguments_of(op), **{keyword: None})
    message = str(raised.value)
    assert message.startswith(start)
    parameters = inspect.signature(function).parameters
    for named in re.findall(r"\bsay (\w+)", message):
        assert named in parameters, message
    check_message(message)


@pytest.mark.parametrize("op", OPS)
def test_any_other_keyword_is_pythons_error(op):
    message = rf"^{op}\(\) got an unexpected keyword argument 'nothing'$"
    with pytest.raises(TypeError, match=message):
        getattr(thunderkittens, op)(**arguments_of(op), nothing=1)


def test_other_errors_pass():
    """Those of the op itself, as they were."""
    leaf = torch.ones(1, 2, 2, 4, requires_grad=True)
    table = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        thunderkittens.rotary(leaf, leaf.detach().clone(), table, table, inplace=True)
    error = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert _mistakes.refuse_types("layer_norm", error) is None


def test_the_sentence_is_that_of_torch_at_hand():
    """What `refuse_types` reads, torch still says: else its own message would be seen again."""
    with pytest.raises(
        RuntimeError, match="Expected a value of type 'float' for argument"
    ) as raised:
        torch.ops.thunderkittens.layer_norm.default(torch.ones(2, 8), None, None, "1e-5")
    with pytest.raises(TypeError, match="^layer_norm: eps must be a number, got str '1e-5'$"):
        _mistakes.refuse_types("layer_norm", raised.value)


def test_nothing_is_recorded_for_the_next_call():
    with pytest.raises(TypeError):
        thunderkittens.layer_norm(torch.ones(2, 8), eps="1e-5")
    assert thunderkittens.layer_norm(torch.ones(2, 8)).shape == (2, 8)
