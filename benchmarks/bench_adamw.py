"""AdamW over all parameters of a model: memory-bound, so every figure is minimum bytes / time.

Minimum bytes of each parameter's element: read the gradient, read and write both moments and the
weight, 28 bytes in float32. With bfloat16 parameters and float32 master weights as many: read the
gradient (2), read and write moments and master weight (24), write the parameter (2). adamw_clip
reads the gradients once more, for their global norm. Torch's peers with master weights hold them as
parameters, and cast gradients and parameters by torch._foreach_copy_.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

import thunderkittens
from benchmarks import harness, peers_adamw
from benchmarks.harness import OURS, Call, Case, Expected, HostCalls, Inputs, Panel
from benchmarks.peers_adamw import BETAS, EPS, LR, MAX_NORM, WEIGHT_DECAY, Lists

PANELS = (Panel("AdamW", False, 0),)
NOTE = (
    "Of all parameters of a model in one call, lists of tensors made beforehand. torch fused: "
    "torch._fused_adamw_ behind torch._foreach_add_ of the steps, for adamw_clip behind "
    "torch.nn.utils.clip_grad_norm_(foreach=True), as torch.optim.AdamW(fused=True) calls them."
)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
NUMBER = 4  # of the step that is timed first


def gpt2(layers: int, width: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of GPT-2's parameters."""
    block = ((width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,))
    block += ((width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,))
    return ((50257, width), (1024, width), *block * layers, (width,), (width,))


MODELS = {
    "GPT-2 124M": gpt2(12, 768),
    "GPT-2 350M": gpt2(24, 1024),
    "12 layers of 256": gpt2(12, 256)[2:],
    "two layers of 128": gpt2(2, 128)[2:],
}


def count(shapes: tuple[tuple[int, ...], ...]) -> int:
    """Elements in all."""
    return sum(torch.Size(shape).numel() for shape in shapes)


def make_inputs(shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype, seed: int) -> Inputs:
    """All gradients, weights and moments, one after the other."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)
    made = {}
    for name, scale in (("grad", 0.02), ("weight", 0.1), ("exp_avg", 0.01), ("exp_avg_sq", 0.01)):
        made[name] = torch.empty(count(shapes), device=harness.DEVICE)
        made[name].normal_(generator=random).mul_(scale)
    made["exp_avg_sq"].square_()
    made["grad"] = made["grad"].to(dtype)
    return made


def expected(i: Inputs, clips: bool) -> Expected:
    """The weights in float64 after the step; the bound is that of the docstring."""
    g = i["grad"].double()
    if clips:
        g *= (MAX_NORM / (g.square().sum().sqrt() + 1e-6)).clamp_max(1.0)
    (beta1, beta2), m, w = BETAS, i["exp_avg"].double(), i["weight"].double()
    size = beta1 * m.abs() + (1 - beta1) * (g.abs() + m.abs())
    m = m + (1 - beta1) * (g - m)
    v = beta2 * i["exp_avg_sq"].double() + (1 - beta2) * g.square()
    scale = 1 / (1 - beta1**NUMBER) / ((v / (1 - beta2**NUMBER)).sqrt() + EPS)
    want = w - LR * (m * scale + WEIGHT_DECAY * w)
    bound = LR * 2.0**-19 * size * scale + 2.0**-22 * (LR * WEIGHT_DECAY * w).abs()
    return [(want, bound + 2.0**-24 * (want.abs() + bound))]


def ours(i: Inputs, shapes: tuple[tuple[int, ...], ...], clips: bool) -> Call:
    """Our ops, as thunderkittens.optim.AdamW calls them."""
    lists = Lists(i, shapes, NUMBER)
    update = partial(
        torch.ops.thunderkittens.adamw_foreach.default,
        lr=LR,
        beta1=BETAS[0],
        beta2=BETAS[1],
        eps=EPS,
        weight_decay=WEIGHT_DECAY,
        maximize=False,
        max_norm=MAX_NORM if clips else None,
        skip_nonfinite=False,
        stochastic_rounding=False,
        seed=0,
    )
    has_masters = lists.params is not lists.weights
    masters = lists.weights if has_masters else []
    states = (lists.params, lists.exp_avgs, lists.exp_avg_sqs, masters, lists.steps)
    numbers = list(range(len(shapes)))

    def run() -> tuple[torch.Tensor]:
        norm = torch.ops.thunderkittens.adamw_grad_norm(lists.grads) if clips else None
        update(lists.grads, *states, None, norm, None, numbers)
        return (lists.flat_weights,)

    return run


def cases(quick: bool = False) -> Iterator[Case]:
    """The update alone, then with the norm, of each model and dtype; `quick` keeps one model."""
    for op, clips in (("adamw", False), ("adamw_clip", True)):
        for model, shapes in list(MODELS.items())[: 1 if quick else None]:
            for name, dtype in DTYPES.items():
                work = (28 + clips * dtype.itemsize) * count(shapes)
                yield Case(
                    op=op,
                    shape=model,
                    dtype=name,
                    work=work,
                    unit="TB/s",
                    inputs=partial(make_inputs, shapes, dtype),
                    expected=partial(expected, clips=clips),
                    contenders={
                        OURS: partial(ours, shapes=shapes, clips=clips),
                        **peers_adamw.of(shapes, clips, NUMBER),
                    },
                    resident=work,
                )


def host_calls(gradient: bool) -> HostCalls:
    """For bench_host: op -> contender -> call. There is no backward."""
    if gradient:
        return {}
    grad, *state = harness.host_tensors(4, (16, 64), gradient)
    moments = [torch.zeros_like(grad) for _ in "mv"]
    steps = [torch.zeros((), device=grad.device)]
    lists = [[t] for t in (state[0], grad, *moments)]
    options = {"lr": LR, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.1, "eps": EPS}
    fused = partial(torch._fused_adamw_, amsgrad=False, maximize=False, **options)
    return {
        "adamw": {
            OURS: lambda: thunderkittens.adamw(grad, state[0], *moments, step=3, **options),
            "torch": lambda: fused(*lists, [], steps),
        }
    }
