"""Refused calls, generated from the very tables that drive the checks."""

import inspect
import math

import pytest
import torch

import configs
import thunderkittens
from tests.ops.described import TABLES, accepted, arguments_in, good
from thunderkittens import _C

# The rest: float16 for float32.
OTHER_DTYPE = {"floating": torch.int32, "index": torch.float32}


def bad(table):
    """(what is wrong, argument, its refused value, exception, what the message says it got)."""
    for index, argument in enumerate(arguments_in(table)):
        if argument["kind"] == "tensor":
            yield from bad_tensors(table, argument, index == 0)
        elif argument["kind"] == "number":
            for value in (math.nan, math.inf, -math.inf):
                yield "not finite", argument, value, ValueError, str(value)
        elif argument["kind"] == "word":
            yield "no such word", argument, argument["words"][0].upper(), ValueError, '"'
        if argument["kind"] in ("number", "integer") and argument["minimum"] > -1e300:
            yield "too small", argument, type(accepted(argument))(-1), ValueError, "-1"
        if argument["kind"] == "number" and argument["maximum"] < 1e300:
            value = argument["maximum"] + 1
            yield "too large", argument, value, ValueError, f"{value:g}"


def bad_tensors(table, argument, first):
    value = accepted(argument)
    dtype = OTHER_DTYPE.get(argument["dtype"], torch.float16)
    name = str(dtype).removeprefix("torch.")
    yield "dtype", argument, value.to(dtype), TypeError, name
    plain = value.float() if value.dtype.itemsize == 1 else value  # few ops take fp8
    yield "layout", argument, plain.to_sparse(), NotImplementedError, "Sparse"
    names = argument["shape"].split(",")
    if not first:
        yield "device", argument, value.to("meta"), ValueError, "meta"
    if "*" not in names:
        more = value.unsqueeze(0)
        yield "rank", argument, more, ValueError, str(list(more.shape))
    less = value[(0,) * (value.dim() if "*" in names and len(names) > 1 else 1)]
    if "*" not in names or (first and len(names) > 1):  # "*" alone is any shape
        yield "rank", argument, less, ValueError, str(list(less.shape))
    for dim, name in enumerate(names):
        if not first and defined_before(table, argument, name):
            longer = torch.cat([plain, plain.narrow(dim, 0, 1)], dim).to(value.dtype)
            yield f"dim {name}", argument, longer, ValueError, str(list(longer.shape))


def defined_before(table, argument, name) -> bool:
    """Whether an earlier argument already says what the size of that dimension is."""
    for earlier in table["arguments"]:
        if earlier["name"] == argument["name"]:
            return False
        if name in earlier["shape"].split(","):
            return True
    return False


BAD = [
    pytest.param(key, *case, id=f"{key}-{case[1]['name']}-{case[0]}-{case[4]}")
    for key, table in TABLES.items()
    for case in bad(table)
]


def call(table, arguments):
    """Calls the op as torch has it."""
    overload = getattr(torch.ops.thunderkittens, table["op"]).default
    schema = [a for a in overload._schema.arguments if not a.kwarg_only]
    arguments = dict(arguments) | {a.name: [True] * a.N for a in schema if a.name == "needs"}
    positional = [arguments.pop(a.name) if a.name in arguments else a.default_value for a in schema]
    return overload(*positional, **arguments)


@pytest.mark.parametrize("key", TABLES)
def test_the_table_describes_calls_that_work(key):
    call(TABLES[key], good(TABLES[key]))


@pytest.mark.parametrize(("key", "what", "argument", "value", "error", "got"), BAD)
def test_refused(key, what, argument, value, error, got):
    table = TABLES[key]
    arguments = good(table)
    before = _C.launch_counts()
    with pytest.raises(error) as raised:
        call(table, {**arguments, argument["name"]: value})
    message = str(raised.value).splitlines()[0]
    assert message.startswith(f"{table['op']}: "), message
    expected, _, found = message.partition(", got ")
    names = (f": {argument['name']} must ", f"({argument['name']} is ")
    if argument is not table["arguments"][0]:
        assert names[0] in expected, message
        assert got.lower() in found.lower(), message
    assert "must" in expected and found, message
    assert _C.launch_counts() == before
    call(table, arguments)  # the next call is fine


@pytest.mark.parametrize("key", TABLES)
def test_refused_on_meta_tensors_too(key):
    """Fake kernels make the same checks, so torch.compile refuses what eager refuses."""
    table = TABLES[key]
    meta = {n: v.to("meta") if torch.is_tensor(v) else v for n, v in good(table).items()}
    call(table, meta)
    tensors = [a for a in arguments_in(table) if a["kind"] == "tensor"]
    if len(tensors) == 1:
        return
    wrong = meta[tensors[1]["name"]].unsqueeze(0)
    with pytest.raises(ValueError, match=f"{table['op']}: .* must have shape .*, got"):
        call(table, {**meta, tensors[1]["name"]: wrong})


def test_messages_name_where_a_size_comes_from():
    message = r"layer_norm: weight must have shape \[1024\] \(x.size\(-1\)\), got \[512\]"
    with pytest.raises(ValueError, match=message):
        thunderkittens.layer_norm(torch.randn(2, 1024), torch.randn(512))
    with pytest.raises(TypeError, match=r"weight must have dtype bfloat16 or float32 \(x is bf"):
        thunderkittens.layer_norm(torch.randn(2, 8).bfloat16(), torch.randn(8).half())


OPS = [op for kernel in configs.KERNELS for op in kernel.ops]


def defaults_of(op: str) -> dict:
    """Of what a function and its op's schema both have: the two defaults."""
    schema = getattr(torch.ops.thunderkittens, op).default._schema
    parameters = inspect.signature(getattr(thunderkittens, op)).parameters
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    return {n: (parameters[n].default, defaults[n]) for n in defaults.keys() & parameters.keys()}


@pytest.mark.parametrize("op", OPS)
def test_defaults_are_the_schemas(op):
    """A function leaves out what it was not given: then the schema's default stands."""
    assert all(mine == schemas for mine, schemas in defaults_of(op).values())


def test_defaults_are_compared():
    assert sum(len(defaults_of(op)) for op in OPS) > 2 * len(OPS)


@pytest.mark.parametrize("key", TABLES)
def test_none_for_a_required_tensor(key):
    table = TABLES[key]
    for argument in table["arguments"]:
        if (
            argument["kind"] == "tensor"
            and not argument["optional"]
            and argument["dtype"] != "index"
        ):
            message = f"{table['op']}: {argument['name']} must be a tensor, got None"
            with pytest.raises(TypeError, match=message):
                call(table, {**good(table), argument["name"]: None})


def test_nested_and_complex_tensors_are_refused():
    parts = [torch.randn(2, 8), torch.randn(3, 8)]
    nested = torch.nested.nested_tensor(parts)
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    message = r"^layer_norm(_backward)?: (x|dy|weight) must be a dense .*, got a nested tensor$"
    weight = torch.ones(8, requires_grad=True)
    backward = torch.ops.thunderkittens.layer_norm_backward
    for x in (nested, jagged):
        for call in (
            lambda x: thunderkittens.layer_norm(x),
            lambda x: thunderkittens.layer_norm(x, weight),
            lambda x: thunderkittens.layer_norm(torch.ones(2, 8), x),
            lambda x: torch.ops.thunderkittens.layer_norm_forward(x, weight, None, 1e-5),
            lambda x: backward(x, x, weight, None, x, x, [True, True, False]),
        ):
            with pytest.raises(NotImplementedError, match=message) as error:
                call(x)
            assert "\n" not in str(error.value)
    with torch.inference_mode(), pytest.raises(NotImplementedError, match=message):
        thunderkittens.layer_norm(nested)
    with pytest.raises(TypeError, match="x must have dtype .*, got complex64"):
        thunderkittens.layer_norm(torch.randn(2, 8, dtype=torch.complex64))


def test_none_beside_a_weight_that_needs_a_gradient():
    weight = torch.ones(8, requires_grad=True)
    with pytest.raises(TypeError, match="^layer_norm: x must be a tensor, got None$"):
        thunderkittens.layer_norm(None, weight)


def test_zero_eps_is_allowed():
    y = thunderkittens.layer_norm(torch.tensor([[1.0, 3.0]]), eps=0.0)
    assert torch.equal(y, torch.tensor([[-1.0, 1.0]]))
