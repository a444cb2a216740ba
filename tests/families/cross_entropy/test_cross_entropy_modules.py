"""nn.CrossEntropyLoss beside torch's; nn.LinearCrossEntropyLoss beside a linear layer and that."""

import pytest
import torch

from thunderkittens import nn

OPTIONS = (
    {},
    {"reduction": "sum"},
    {"reduction": "none", "ignore_index": 3},
    {"label_smoothing": 0.1, "ignore_index": -1},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_like_torch(options):
    ours, theirs = nn.CrossEntropyLoss(**options), torch.nn.CrossEntropyLoss(**options)
    logits, targets = torch.randn(4, 9), torch.tensor([0, 3, 8, 3])
    inputs = [logits.clone().requires_grad_() for _ in range(2)]
    results = [module(leaf, targets) for module, leaf in zip((ours, theirs), inputs, strict=True)]
    torch.testing.assert_close(*results)
    for result in results:
        result.square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_linear_like_torch(options):
    layer, theirs = torch.nn.Linear(5, 9), torch.nn.CrossEntropyLoss(**options)
    x, targets = torch.randn(4, 5, requires_grad=True), torch.tensor([0, 3, 8, 3])
    ours = nn.LinearCrossEntropyLoss(**options)
    results = [ours(x, layer.weight, targets, layer.bias), theirs(layer(x), targets)]
    torch.testing.assert_close(*results)
    leaves = (x, layer.weight, layer.bias)
    gradients = [torch.autograd.grad(result.square().sum(), leaves) for result in results]
    torch.testing.assert_close(*gradients)


def test_own_options():
    """What torch's module does not have reaches the op."""
    logits, targets = torch.randn(4, 9, requires_grad=True), torch.tensor([0, 3, 8, 3])
    own = logits * 1
    nn.CrossEntropyLoss(inplace=True)(own, targets)
    assert not torch.equal(own, logits)
    lse = logits.logsumexp(-1)
    more = nn.CrossEntropyLoss(z_loss=0.5, reduction="none")(logits, targets)
    plain = nn.CrossEntropyLoss(reduction="none")(logits, targets)
    torch.testing.assert_close(more - plain, 0.5 * lse.square())
    flat = nn.LinearCrossEntropyLoss(z_loss=0.5, reduction="none")(torch.eye(4), logits.T, targets)
    torch.testing.assert_close(flat, more)


def test_weights_of_classes_are_refused():
    with pytest.raises(ValueError, match="CrossEntropyLoss: weight must be None, .* got Tensor"):
        nn.CrossEntropyLoss(torch.ones(9))
