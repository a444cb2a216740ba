"""cache_append under torch.compile: into views of one tensor it writes what eager writes."""

import pytest
import torch

from thunderkittens import cache_append

VIEWS = {  # a tensor's shape, and the caches in it, [3, 8, 2, 4] or pages of that shape
    "all of one": ((2, 3, 8, 2, 4), lambda t: (t[0], t[1])),
    "a layer": ((3, 2, 3, 8, 2, 4), lambda t: (t[1, 0], t[1, 1])),
    "beside each other": ((3, 8, 2, 2, 4), lambda t: (t[:, :, 0], t[:, :, 1])),
    "the second alone": ((2, 3, 8, 2, 4), lambda t: (torch.zeros_like(t[0]), t[1])),
}


CASES = [  # whose caches are made in the compiled function or given to it; whose sizes are symbols
    *(("aot_eager", name, made, False) for name in VIEWS for made in ("inside", "outside")),
    *(("aot_eager", name, "inside", True) for name in VIEWS),
    ("inductor", "all of one", "outside", False),  # two views of one storage, written by one op
    ("inductor", "beside each other", "outside", False),
    ("inductor", "all of one", "inside", True),  # an offset that is a symbol
    ("inductor", "a layer", "inside", True),
    ("inductor", "the second alone", "inside", True),
]


@pytest.mark.parametrize(("backend", "name", "made", "dynamic"), CASES)
@torch._inductor.config.patch(force_disable_caches=True)  # it takes views for tensors of their own
@torch.no_grad()
def test_views_of_one_tensor(backend, name, made, dynamic):
    """All of the tensor is compared: nothing else is written either."""
    shape, caches_of = VIEWS[name]
    inside = made == "inside"
    rotated, paged = name == "a layer", name == "all of one"
    angle = torch.randn(30, 2)
    turn = {"cos": angle.cos(), "sin": angle.sin()} if rotated else {}
    table = torch.tensor([[2, 0], [1, 9]]) if paged else None

    def step(k, v, *rest):
        *tensors, seqlens = rest
        caches = caches_of(*tensors) if inside else tensors
        cache_append(k, v, *caches, seqlens, table, **turn)
        return caches[0].sum() + caches[1].sum()

    torch._dynamo.reset()
    run = torch.compile(step, backend=backend, dynamic=dynamic, fullgraph=True)
    rows = 2 if paged else 3
    for lengths in ([1, 9, 8], [8, 3, 2], [0, 16, -5]):
        k, v = torch.randn(2, rows, 2, 2, 4)
        seqlens, whole = torch.tensor(lengths[:rows]), torch.randn(shape)
        again = whole.clone()
        results = []
        for function, tensor in ((step, whole), (run, again)):
            given = [tensor] if inside else caches_of(tensor)
            results.append(function(k, v, *given, seqlens))
        torch.testing.assert_close(again, whole, rtol=0, atol=1e-6 if rotated else 0)
        torch.testing.assert_close(*results)


@pytest.mark.parametrize("mode", ["inference", "autocast"])
@torch._inductor.config.patch(force_disable_caches=True)
def test_views_under_other_modes(mode):
    """Inference mode, where a tensor does not know that it is a view; and the dtype of a cache."""
    inference = mode == "inference"
    context = torch.inference_mode() if inference else torch.autocast("cpu", torch.bfloat16)
    dtype = torch.float32 if inference else torch.bfloat16
    torch._dynamo.reset()
    compiled = torch.compile(cache_append, fullgraph=True)
    with context:
        whole, (k, v) = torch.zeros(2, 3, 8, 2, 4, dtype=dtype), torch.randn(2, 3, 1, 2, 4)
        again, seqlens = whole.clone(), torch.tensor([1, 9, 8])
        cache_append(k, v, whole[0], whole[1], seqlens)
        compiled(k, v, again[0], again[1], seqlens)
    assert whole.count_nonzero() > 0
    assert torch.equal(again, whole)


def test_a_gradient_is_refused_there_too():
    torch._dynamo.reset()
    compiled = torch.compile(cache_append, fullgraph=True, backend="aot_eager")
    whole, k = torch.zeros(2, 3, 8, 2, 4), torch.randn(3, 1, 2, 4, requires_grad=True)
    with pytest.raises(Exception, match="cache_append: k must not require a gradient"):
        compiled(k, k.detach(), whole[0], whole[1], torch.tensor([1, 2, 3]))
