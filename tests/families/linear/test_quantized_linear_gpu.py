"""quantized_linear's kernels on a GPU: the list of the simulator, and decoding's sizes."""

import copy
import dataclasses

import pytest
import torch

import thunderkittens
from tests.families.linear import quantized_cases as cases
from tests.families.linear.cases import FP16
from tests.families.linear.quantized_cases import E4M3, QuantizedCase
from thunderkittens import _C
from thunderkittens.nn import QuantizedLinear
from thunderkittens.testing import memory

pytestmark = pytest.mark.gpu

LARGE = [
    *(QuantizedCase((m,), 4096, 4096, group) for m in (1, 7, 16) for group in (0, 128)),
    *(QuantizedCase((8,), 4096, 14336, g, FP16, activation="swiglu") for g in (0, 128)),
    *(QuantizedCase((2,), 14336, 4096, g, zero=g > 0, residual=True) for g in (0, 128)),
    *(QuantizedCase((16,), 4096, 6144, g, norm=1e-5) for g in (0, 64)),
    QuantizedCase((3,), 4096, 128256, 128),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", [*cases.every(), *LARGE], ids=str)
def test_against_float64(case):
    """Right, the same bits again, and by our kernel."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["quantized_linear"]
    results = cases.run_case(case, inputs)
    assert _C.launch_counts()["quantized_linear"] == before + 1
    cases.check_case(case, inputs, results)
    for _ in range(3):
        assert memory.bits_equal(cases.run_case(case, inputs)[0], results[0])


def test_nan_of_e4m3_stays_nan():
    weight = torch.zeros(32, 4096, dtype=torch.uint8, device="cuda")
    weight[5, 77], weight[20, 4095] = cases.NAN_CODE, cases.NAN_CODE | 0x80
    x = torch.randn(3, 4096, device="cuda").bfloat16()
    y = thunderkittens.quantized_linear(x, weight.view(E4M3), torch.ones(32, device="cuda"))
    assert y.isnan().any(0).nonzero().flatten().tolist() == [5, 20]
    assert y[:, [5, 20]].isnan().all()


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_a_constant_weight_changes_no_bit(case):
    inputs = cases.make(case, "cuda")
    (want,) = cases.run_case(case, inputs)
    for _ in range(20):
        (y,) = cases.run_case(dataclasses.replace(case, constant=True), inputs)
        assert memory.bits_equal(y, want)


@torch.no_grad()
@pytest.mark.parametrize("form", [E4M3, "int4"], ids=str)
def test_a_constant_weight_that_was_written_before_the_kernel_in_front(form):
    layers = [
        QuantizedLinear.from_linear(torch.nn.Linear(512, 512), form).to("cuda", torch.bfloat16)
        for _ in range(20)
    ]
    x = torch.randn(2, 512, device="cuda").bfloat16()
    wants = [layer(x) for layer in layers]
    used = copy.deepcopy(layers[0])
    used.weight_is_constant = True
    for layer, want in zip(layers, wants, strict=True):
        for name, tensor in layer.named_buffers():
            getattr(used, name).copy_(tensor)
        used.bias.copy_(layer.bias)
        moved = x + 0  # the kernel in front, which writes x
        assert memory.bits_equal(used(moved), want)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("form", [E4M3, "int4"], ids=str)
def test_a_graph_of_layers_has_the_bits_of_calls(form, constant):
    """x goes past shared memory: through the L1, which must not have what was there before."""
    weights = [torch.randn(1024, 1024, device="cuda").bfloat16() / 32 for _ in range(20)]
    made = [thunderkittens.quantize_weight(weight, form) for weight in weights]
    x = torch.randn(4, 1024, device="cuda").bfloat16()
    y = [torch.empty_like(x), torch.empty_like(x)]  # written and read by turns

    def layers(constant):
        y[0].copy_(x)
        for i, weight in enumerate(made):
            options = {"weight_is_constant": constant}
            y[(i + 1) % 2].copy_(thunderkittens.quantized_linear(y[i % 2], *weight, **options))
            y[i % 2].zero_()
        return y[len(made) % 2]

    want = layers(False).clone()
    assert want.isfinite().all() and want.any()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = layers(constant)
    for _ in range(10):
        graph.replay()
        assert memory.bits_equal(got, want)


def test_a_weight_that_the_kernel_in_front_writes():
    """Launched before that one has ended, it waits for what it reads."""
    x = torch.randn(2, 512, device="cuda").bfloat16()
    new = [
        thunderkittens.quantize_weight(torch.randn(512, 512, device="cuda"), E4M3)
        for _ in range(20)
    ]
    weight, scale = torch.zeros_like(new[0].weight), torch.ones_like(new[0].scale)
    for each in new:
        weight.copy_(each.weight)
        scale.copy_(each.scale)
        y = thunderkittens.quantized_linear(x, weight, scale)
        assert memory.bits_equal(y, thunderkittens.quantized_linear(x, *each))
