"""Inductor knows our ops before it meets them, whatever is imported first.

An op that it does not know costs time that grows exponentially with the depth of the model; with
`implicit_fallbacks` off, it raises. Each program runs in a process of its own, as what Inductor has
met once in a process it knows from then on.
"""

import os
import subprocess
import sys

import pytest

from tests.tools.ahead import called_ahead
from thunderkittens._loader import PACKAGE

# All but what is taken apart before Inductor sees it.
ALL_ARE_KNOWN = """
import torch._inductor.lowering as lowering
names = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("thunderkittens::")]
key = "CompositeImplicitAutograd"
own = [n for n in names if not torch._C._dispatch_has_kernel_for_dispatch_key(n, key)]
assert len(own) > 20, own
for name in own:
    op, _, overload = name.removeprefix("thunderkittens::").partition(".")
    packet = getattr(torch.ops.thunderkittens, op)
    assert getattr(packet, overload or "default") in lowering.lowerings, name

# What was compiled with another library of ours is not taken from torch's caches.
import hashlib
import torch.compiler.config
from thunderkittens import _loader
library = hashlib.sha256(_loader.LIBRARY.read_bytes()).hexdigest()[:16]
assert torch.compiler.config.cache_key_tag == f"thunderkittens-{library}"
import torch._inductor.codecache as codecache
import torch._inductor.compile_fx as compile_fx
graph = torch.fx.symbolic_trace(lambda x: x + 1)
def key():
    return codecache.compiled_fx_graph_hash(graph, [torch.ones(2)], {}, [])[0]
with_ours = key()
torch.compiler.config.cache_key_tag = "thunderkittens-of-another-build"
assert key() != with_ours
"""
IMPORTED_FIRST = """
import sys
import torch
import thunderkittens
assert "torch._inductor.lowering" not in sys.modules
assert "torch._inductor.graph" not in sys.modules
"""
# An op's two outputs feed the next, layer after layer. Between the ops there are products alone,
# for which no C++ is compiled: that would take most of a minute.
TWELVE_LAYERS = """
import torch._inductor.config

torch._inductor.config.implicit_fallbacks = False
torch._inductor.config.fx_graph_cache = False
LAYERS, WIDTH = 12, 16
torch.manual_seed(0)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = torch.nn.Parameter(torch.randn(4, WIDTH))
        self.weights = torch.nn.Parameter(torch.randn(3, WIDTH, WIDTH) / 4)
        self.register_buffer("keys", torch.randn(2, 4, 2, 8))

    def forward(self, x, residual):
        h, residual = thunderkittens.add_layer_norm(x, residual, self.norms[0], self.norms[1])
        q = (h @ self.weights[0]).view(2, 4, 2, 8)
        y = thunderkittens.attention(q, self.keys, self.keys, causal=True).view(8, WIDTH)
        h, residual = thunderkittens.add_rms_norm(y, residual, self.norms[2])
        return thunderkittens.gelu(h @ self.weights[1]) @ self.weights[2], residual


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = torch.nn.Parameter(torch.randn(WIDTH, 32))

    def forward(self, x, residual, targets):
        for layer in self.layers:
            x, residual = layer(x, residual)
        h, _ = thunderkittens.add_layer_norm(x, residual)
        return thunderkittens.cross_entropy(h @ self.head, targets)  # the first in the graph


model = Model()
inputs = torch.randn(8, WIDTH), torch.randn(8, WIDTH), torch.randint(0, 32, (8,))
want = model(*inputs)
want.backward()
gradients = [p.grad for p in model.parameters()]
model.zero_grad()
got = torch.compile(model, fullgraph=True)(*inputs)
got.backward()
torch.testing.assert_close(got, want)
for p, gradient in zip(model.parameters(), gradients, strict=True):
    torch.testing.assert_close(p.grad, gradient)
"""
# Registered as Inductor would do it: the op sees the strides of eager code.
IMPORTED_LAST = f"""
import torch
from torch._inductor.lowering import constrain_to_fake_tensors, maybe_layout_constraints
import thunderkittens
{ALL_ARE_KNOWN}
op = torch.ops.thunderkittens.layer_norm_forward.default
assert maybe_layout_constraints(op) is constrain_to_fake_tensors
"""
PROGRAMS = {
    "twelve layers, imported first": IMPORTED_FIRST + ALL_ARE_KNOWN + TWELVE_LAYERS,
    "imported last": IMPORTED_LAST,
}


def run(name: str) -> subprocess.CompletedProcess:
    alone = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # nor with a pool of processes
    command, folder = [sys.executable, "-c", PROGRAMS[name]], PACKAGE.parent
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=alone, timeout=600
    )


@pytest.fixture(scope="module")
def ran(request):
    with called_ahead(request, run, "name") as result:
        yield result


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, ran):
    done = ran(name)
    assert done.returncode == 0, done.stderr[-3000:]
