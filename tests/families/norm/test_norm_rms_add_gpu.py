"""rms_norm, add_layer_norm and add_rms_norm on a GPU, and what only a GPU can show."""

import pytest
import torch

import thunderkittens
from tests.families.norm import rms_add_cases as cases
from tests.families.norm.rms_add_cases import ADDS, BF16, FP16, FP32, FP64, OPS, Case
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C
from thunderkittens.testing import check_memory, memory

pytestmark = pytest.mark.gpu

WIDTHS = (*cases.WIDTHS, 255, 256, 257, 4096, 4097, 8192, 8193, 12288, 12289, 16384, 16385, 65536)
ROWS = (1, 2, 131, 133, 1000, 70_000)
ALL = [
    *cases.widths(WIDTHS),
    *cases.widths((64, 100, 1024, 4095, 20000), p=0.3, leading=(130,)),
    *(
        Case(op, w, (r,), BF16, d, d)
        for op in OPS
        for r in ROWS
        for w, d in ((64, BF16), (128, FP32), (300, BF16))
    ),
    *(case for width in (64, 129, 1024, 8200) for case in cases.options(width)),
    *(case for width in (33, 64, 768) for case in cases.layouts(width)),
    *(
        Case(op, w, (300,), BF16, d, BF16)
        for op in OPS
        for w in (264, 520, 1032, 3000, 4104)
        for d in (BF16, FP32, None)
    ),
    *(Case(op, w, (3, 40), layout="heads") for op in OPS for w in (64, 128, 256)),
    # More rows than the backward takes in one launch.
    *cases.widths((1, 100, 255, 256, 257, 1024, 4096, 8192, 8193), p=0.3, leading=(300,)),
    *(case for width in (64, 129, 1024) for case in cases.options(width, (300,))),
    *(case for width in (33, 64, 768) for case in cases.layouts(width, (3, 100))),
    *(Case(op, w, (3, 400), layout="heads") for op in OPS for w in (64, 128, 256)),
]
LARGE = [
    *(Case(op, 1024, (1000,), BF16, BF16, BF16, p=0.1 if op in ADDS else 0.0) for op in OPS),
    *(Case(op, 4096, (128,), BF16, BF16, BF16, p=0.1 if op in ADDS else 0.0) for op in OPS),
    *(Case(op, 64, (5000,), BF16, BF16, BF16, p=0.1 if op in ADDS else 0.0) for op in OPS),
    *(Case(op, 16384, (200,), BF16, FP32, FP32, p=0.1 if op in ADDS else 0.0) for op in OPS),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def launches() -> int:
    return sum(_C.launch_counts().values())


def same(got, want) -> bool:
    return all(a is b is None or memory.bits_equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, the same bits with other neighbours, and by our kernels."""
    inputs = cases.make(case, "cuda")
    before = launches()
    results = check_memory(lambda *t: cases.run(case, *t), *inputs)
    assert launches() == before + 4  # two runs, forward and backward
    cases.check(case, inputs, results)


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_run_to_run(case):
    """The same bits every time, also while another stream keeps the GPU busy."""
    inputs = cases.make(case, "cuda")
    check_same_bits(lambda: cases.run(case, *inputs))


@pytest.mark.parametrize("op", ADDS)
@pytest.mark.parametrize("width", [7, 64, 264, 300, 1040, 4096, 8200, 16392])
@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_mask_is_that_of_the_cpu(op, width, dtype):
    x, zeros = torch.ones(300, width, dtype=dtype), torch.zeros(300, width, dtype=dtype)
    seed = torch.tensor([-5])
    call = getattr(thunderkittens, op)
    _, want = call(x, zeros, dropout_p=0.3, seed=seed)
    there = x.cuda().requires_grad_()
    _, total = call(there, zeros.cuda(), dropout_p=0.3, seed=seed.cuda())
    assert torch.equal(total.cpu(), want)
    total.sum().backward()
    assert torch.equal(there.grad.cpu() == 0, want == 0)


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_graph_capture(case):
    """Forward and backward in one CUDA graph; replays on new data give the bits of eager."""
    static = cases.make(case, "cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        cases.run(case, *static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = cases.run(case, *static)
    for number in range(3):
        fresh = cases.make(case, "cuda")
        if fresh[-1] is not None:
            fresh[-1].fill_(number)
        for place, values in zip(static, fresh, strict=True):
            if place is not None:
                place.copy_(values)
        graph.replay()
        assert same(captured, cases.run(case, *fresh))


@pytest.mark.parametrize("op", ADDS)
def test_a_graph_draws_a_new_seed_at_each_replay(op):
    x, zeros = torch.ones(64, 256, device="cuda"), torch.zeros(64, 256, device="cuda")
    leaf = x.clone().requires_grad_()

    def run():
        _, total = getattr(thunderkittens, op)(leaf, zeros, dropout_p=0.5)
        return total.detach(), *torch.autograd.grad(total, leaf, torch.ones_like(total))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total, dx = run()
    masks = []
    for _ in range(3):
        graph.replay()
        assert torch.equal(dx, total)
        masks.append((total == 0).clone())
    assert not torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[1], masks[2])


@pytest.mark.parametrize("case", LARGE[:9], ids=str)
def test_side_stream(case):
    """The op waits for the producer on its own stream and not for others."""
    inputs = cases.make(case, "cuda")
    want = cases.run(case, *inputs)
    for _ in range(5):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            late = [None if t is None else t.clone() for t in inputs]
            results = [None if t is None else t.clone() for t in cases.run(case, *late)]
        torch.cuda.current_stream().wait_stream(stream)
        assert same(results, want)


@pytest.mark.parametrize("op", OPS)
def test_no_hidden_synchronisation(op):
    case = Case(op, 1024, (133,), p=0.1 if op in ADDS else 0.0)
    *tensors, dy, dsum, _ = cases.make(case, "cuda")
    cases.run(case, *tensors, dy, dsum, None)
    torch.cuda.set_sync_debug_mode("error")
    try:
        cases.run(case, *tensors, dy, dsum, None)  # draws its own seed
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("width", [64, 1024])
def test_more_than_2_to_the_31_elements(op, width):
    """The last rows of a tensor past 2³¹ elements are those of a small one."""
    if torch.cuda.mem_get_info()[0] < 60 << 30:
        pytest.skip("needs 60 GiB of GPU memory")
    rows, last = 2**31 // width + 1, 200
    case = Case(op, width, (last,), BF16, BF16, BF16)
    tail, other, *rest = cases.make(case, "cuda")
    x = torch.ones(rows, width, dtype=BF16, device="cuda")
    x[-last:] = tail
    residual = None
    if other is not None:
        residual = torch.ones_like(x)
        residual[-last:] = other
    parameters, seed = rest[:2], rest[-1]
    found = cases.call(case, x, residual, *parameters, seed)
    wanted = cases.call(case, tail, other, *parameters, seed)
    for got, want in zip(found, wanted, strict=True):
        assert memory.bits_equal(got[-last:], want)
    del found
    if op == "rms_norm":
        ops = torch.ops.thunderkittens
        rstd = ops.rms_norm_forward(x, parameters[0], 1e-5, 0.0, "llama")[1]
        dx = ops.rms_norm_backward(x, x, parameters[0], rstd, 0.0, [True, False])[0]
        options = (parameters[0], rstd[-last:], 0.0, [True, False])
        want = ops.rms_norm_backward(tail, tail, *options)[0]
        assert memory.bits_equal(dx[-last:], want)


@pytest.mark.parametrize("op", ADDS)
def test_mask_past_2_to_the_32_elements(op):
    """The counter has 64 bits: the last rows do not have the first ones' mask."""
    if torch.cuda.mem_get_info()[0] < 100 << 30:
        pytest.skip("needs 100 GiB of GPU memory")
    rows, width = 2**32 // 1024 + 2, 1024
    x = torch.ones(rows, width, dtype=BF16, device="cuda")
    call = getattr(thunderkittens, op)
    total = call(x, torch.zeros_like(x), dropout_p=0.5, seed=torch.tensor([3], device="cuda"))[1]
    kept = total[-2:].flatten() != 0
    first = total[:2].flatten() != 0
    assert not torch.equal(kept, first)
    assert 0.4 < float(kept.float().mean()) < 0.6


@pytest.mark.parametrize("op", OPS)
def test_fallbacks_say_why(op, monkeypatch):
    x = torch.randn(2, 8, dtype=FP64, device="cuda")
    arguments = (x, x) if op in ADDS else (x,)
    with pytest.raises(RuntimeError, match=f"{op}: computed by torch: float64 is computed"):
        getattr(thunderkittens, op)(*arguments)
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    _C.forget_warnings()
    with pytest.warns(UserWarning, match=f"{op}: computed by torch"):
        getattr(thunderkittens, op)(*arguments)


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("op", OPS)
def test_compile(op, dtype):
    """Inductor around the opaque op: no graph break, the bits of eager."""
    torch.compiler.reset()

    def function(case, *tensors):
        return cases.call(case, *tensors)

    compiled = torch.compile(function, fullgraph=True, dynamic=True)
    for rows in (7, 40):
        case = Case(op, 768, (rows,), dtype, FP32, dtype, p=0.2 if op in ADDS else 0.0)
        *tensors, dy, dsum, seed = inputs = cases.make(case, "cuda")
        leaves = [None if t is None else t.clone().requires_grad_() for t in tensors]
        outputs = compiled(case, *leaves, seed)
        given = [t for t in leaves if t is not None]
        results = torch.autograd.grad(outputs, given, [dy, dsum][: len(outputs)])
        wants = [t for t in cases.run(case, *inputs) if t is not None]
        for got, want in zip((*outputs, *results), wants, strict=True):
            assert memory.bits_equal(got.detach(), want)
