"""Other people's activations, as contenders: each is optional, and says why it is absent."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks import peers
from benchmarks.harness import Call, Inputs, Outputs
from benchmarks.peers import find

F = torch.nn.functional
Peer = Callable[[Inputs], Call]


def of(op: str) -> dict[str, Peer]:
    """The peers of an op, by name."""
    found = {"torch": TORCH[op], "torch.compile": compiled(op)}
    if op.startswith("gelu"):
        return found
    found["Liger"] = LIGER[op]
    if op.startswith("swiglu"):
        found["flash-attn"] = FLASH[op]
    return found


# ---- torch: gate, up, dy [rows, width], gelu x, dy ----------------------------------------------


def torch_backward(name: str) -> Callable[[Inputs], Outputs]:
    """What autograd runs for f(gate) · up: a product, f's backward, f again, a product."""

    def run(i: Inputs) -> Outputs:
        dy, gate, up = i["dy"], i["gate"], i["up"]
        if name == "silu":
            return torch.ops.aten.silu_backward(dy * up, gate), dy * F.silu(gate)
        dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
        return dgate, dy * F.gelu(gate, approximate="tanh")

    return run


FORMULAS: dict[str, Callable[[Inputs], Outputs]] = {
    "swiglu": lambda i: (F.silu(i["gate"]) * i["up"],),
    "swiglu_backward": torch_backward("silu"),
    "geglu": lambda i: (F.gelu(i["gate"], approximate="tanh") * i["up"],),
    "geglu_backward": torch_backward("gelu"),
    "gelu": lambda i: (F.gelu(i["x"], approximate="tanh"),),
    "gelu_backward": lambda i: (torch.ops.aten.gelu_backward(i["dy"], i["x"], approximate="tanh"),),
}


def eager(op: str) -> Peer:
    """PyTorch's own kernels, one after the other."""
    return lambda i: lambda: FORMULAS[op](i)


def compiled(op: str) -> Peer:
    """The same formula, compiled."""

    def build(i: Inputs) -> Call:
        run = peers.compiled(FORMULAS[op])
        return lambda: run(i)

    return build


TORCH = {op: eager(op) for op in FORMULAS}


# ---- Triton and jiterator: contiguous gate, up, dy ----------------------------------------------


def contiguous(i: Inputs) -> dict[str, torch.Tensor]:
    """Copies, made before anything is timed."""
    return {name: t.contiguous() for name, t in i.items()}


def liger(op: str) -> Peer:
    """Liger's Triton kernel.

    Its backward writes dgate and dup over gate and up, here over copies that are made once: from
    the second call on it differentiates other numbers, which costs it nothing.
    """
    function = op.removesuffix("_backward")

    def build(i: Inputs) -> Call:
        name = f"{op}_forward" if op == function else op
        run = find(f"liger_kernel.ops.{function}", name, "liger-kernel")
        given = contiguous(i)
        if op == function:
            return lambda: (run(given["gate"], given["up"])[-1],)
        gate, up = given["gate"].clone(), given["up"].clone()
        return lambda: run(gate, up, given["dy"])

    return build


LIGER = {op: liger(op) for op in ("swiglu", "swiglu_backward", "geglu", "geglu_backward")}


def flash(op: str) -> Peer:
    """flash-attention's kernel, which torch's jiterator compiles."""

    def build(i: Inputs) -> Call:
        name = "swiglu_fwd" if op == "swiglu" else "swiglu_bwd"
        run = find("flash_attn.ops.activations", name, "flash-attn")
        given = contiguous(i)
        if op == "swiglu":
            return lambda: (run(given["gate"], given["up"]),)
        return lambda: run(given["gate"], given["up"], given["dy"])

    return build


FLASH = {op: flash(op) for op in ("swiglu", "swiglu_backward")}
