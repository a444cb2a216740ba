"""What ops compute by ATen, on the fuzz's cases: sums have an order, and nothing is read back.

Both are seen without a GPU, call by call (tests/tools/aten_calls.py).
"""

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

import thunderkittens
from tests.fuzz import case
from tests.fuzz.draw import Draw
from tests.fuzz.run import compute
from tests.tools.aten_calls import Inside, is_unordered

OPS = sorted(case.ops())
SEEDS = range(16)
READING = {op for op in OPS if getattr(case.ops()[op], "READS_ON_A_CPU", False)}


def drawn(op: str):
    """The cases, with their tensors and the gradients that arrive."""
    for seed in SEEDS:
        one = case.ops()[op].make(Draw(op, seed, "cpu"), op)
        inputs = {name: placed.lay_out(0) for name, placed in one.inputs.items()}
        incoming = {name: placed.lay_out(0) for name, placed in one.incoming.items()}
        yield one, inputs, incoming


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", OPS)
def test_every_sum_has_an_order(op):
    calls = 0
    for one, *tensors in drawn(op):
        with thunderkittens.backend("torch"), Inside() as seen:
            compute(one, *tensors)
        assert not seen.unordered, one.title
        calls += seen.calls
    assert calls > len(SEEDS)  # it was seen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", sorted(set(OPS) - READING))
def test_nothing_is_read_back(op):
    """Tensors without values raise where one is read; so such calls can be captured in a graph."""
    calls = 0
    for one, *tensors in drawn(op):
        with FakeTensorMode() as mode:
            fake = [{n: mode.from_tensor(t) for n, t in some.items()} for some in tensors]
            try:
                with thunderkittens.backend("torch"), Inside(fake=True) as seen:
                    compute(one, *fake)
            except RuntimeError as error:
                if "must not share memory" not in str(error):
                    raise
                continue
        assert seen.calls
        calls += seen.calls
    if calls == 0:
        pytest.skip("what it writes shares no memory, and tensors without values have one address")


def test_what_has_no_order_is_seen():
    x, index = torch.randn(4, requires_grad=True), torch.tensor([0, 0, 3])
    y = x.index_select(0, index).sum() + x[index].sum() + x.gather(0, index).sum()
    words = nn.functional.embedding(index, x[:, None]).sum()
    with Inside() as seen:
        torch.autograd.grad(y + words, x)
        x.detach().cumsum(0)
        torch.ones(4, 1).cumsum(0)
    names = [text.split()[0] for text in seen.unordered]
    found = ["cumsum", "cumsum", "embedding_dense_backward", "index_add", "index_put"]
    assert sorted(names) == [*found, "scatter_add"]
    assert not is_unordered("cumsum", torch.ones(2, 4), 1)
    assert not is_unordered("cumsum", torch.arange(4), 0)
