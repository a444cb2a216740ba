"""What the kernels compute: problems, with a reference in float64, and who else computes them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import thunderkittens

Kernel = Callable[..., Tensor]
Reference = Callable[..., Iterator[tuple[int | slice, Tensor, Tensor]]]

BF16 = 2.0**-8  # the largest relative error of rounding to bfloat16
SUM = 2.0**-23  # … and of an addition in float32, on tensor cores too, which may cut off
CHUNK = 64  # tokens of linear_attention.cu, before the state is rounded


@dataclass(frozen=True)
class Case:
    """A problem.

    Attributes:
        title: What it is, and how large.
        tensors: What kernels and peers take.
        kernels: The demo's, by the names of their files.
        peers: Others, which may be missing on this GPU.
        reference: Gives parts of the result in float64, each with its place in the first
            dimension, and how far a kernel's may be from it.
        work: What a call does, in `unit`s of 10⁻¹² a second: FLOPs, or bytes.
        unit: "TFLOP/s", or "TB/s" where memory is the limit.
    """

    title: str
    tensors: tuple[Tensor, ...]
    kernels: dict[str, Kernel]
    peers: dict[str, Kernel]
    reference: Reference
    work: float
    unit: str = "TFLOP/s"


def all_cases(
    extension: ModuleType, heads: int, length: int, size: int, device: str = "cuda"
) -> Iterator[Case]:
    """The problems of the kernels that `extension` has, one after the other: they are large."""
    generator = torch.Generator(device).manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, dtype=torch.bfloat16, generator=generator)

    names = ("attention", "flash_attention_2", "load_store_compute_finish")
    kernels = {f"{name}.cu": getattr(extension, name, None) for name in names}
    for width in (64, 128):
        q, k, v = (random(heads, length, width) for _ in range(3))
        for causal in (False, True):
            here = {name: kernel for name, kernel in kernels.items() if kernel}
            if causal or width > 64:
                here = {}
            if hasattr(extension, "flash_attention_3"):
                here["flash_attention_3.cu"] = partial(extension.flash_attention_3, causal=causal)
            if here:
                yield attention((q, k, v), causal, here)
    if hasattr(extension, "linear_attention"):
        q, k, v = (random(heads, length, 64) for _ in range(3))
        yield linear_attention((q, k, v), {"linear_attention.cu": extension.linear_attention})
    if hasattr(extension, "gemm"):
        yield gemm((random(size, size), random(size, size)), {"gemm.cu": extension.gemm})


def attention(tensors: tuple[Tensor, ...], causal: bool, kernels: dict[str, Kernel]) -> Case:
    """softmax(q kᵀ / √D) v, beside torch's FlashAttention-2 and cuDNN."""
    heads, length, width = tensors[0].shape

    def peer(backend: SDPBackend, *tensors: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            four = [t[None] for t in tensors]
            o = torch.nn.functional.scaled_dot_product_attention(*four, is_causal=causal)
            return o[0]

    return Case(
        f"attention of {heads} heads, {length} tokens, head dimension {width}"
        + (", causal" if causal else ""),
        tensors,
        kernels,
        {
            "FlashAttention-2": partial(peer, SDPBackend.FLASH_ATTENTION),
            "cuDNN": partial(peer, SDPBackend.CUDNN_ATTENTION),
        },
        partial(attention_reference, causal=causal),
        4.0 * heads * length**2 * width / (2 if causal else 1),
    )


def attention_reference(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """One head after the other: float64 scores are large.

    The kernels round the weights to bf16, and in the end the output: each time by at most 2⁻⁸ of
    Σ weight · |v|. What float32 adds (sums of D products, exp, a rescaling of every 16 to 128 keys)
    is small beside that: a twentieth is left for it.
    """
    for head in range(len(q)):
        a, b, c = (x[head].double() for x in (q, k, v))
        scores = a @ b.mT / a.shape[-1] ** 0.5
        if causal:
            scores.masked_fill_(torch.ones_like(scores).triu(1).bool(), -torch.inf)
        weights = torch.softmax(scores, dim=-1)
        yield head, weights @ c, 1.05 * 2 * BF16 * (weights @ c.abs())


def linear_attention(tensors: tuple[Tensor, ...], kernels: dict[str, Kernel]) -> Case:
    """Σ (s ≤ t) (q(t) · k(s)) v(s), beside the package's op, by the bytes of q, k, v and o."""
    heads, length, width = tensors[0].shape

    def op(*tensors: Tensor) -> Tensor:
        q, k, v = (t.transpose(0, 1)[None] for t in tensors)  # [1, length, heads, width]
        return thunderkittens.linear_attention(q, k, v, scale=1.0)[0].transpose(0, 1)

    return Case(
        f"linear attention of {heads} heads, {length} tokens, head dimension {width}",
        tensors,
        kernels,
        {"thunderkittens": op},
        linear_attention_reference,
        4.0 * heads * length * width * 2,
        "TB/s",
    )


def linear_attention_reference(
    q: Tensor, k: Tensor, v: Tensor
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """One head after the other.

    To bf16 are rounded the weights of a token's own chunk, the state before it, and the output. In
    float32, length + 64 numbers are added up at most.
    """
    length, width = q.shape[1:]
    first = torch.arange(length, device=q.device) // CHUNK
    mine = (first[:, None] == first[None, :]).tril()  # of the same chunk, and not behind
    for head in range(len(q)):
        a, b, c = (x[head].double() for x in (q, k, v))
        own = (a @ b.mT).masked_fill_(~mine, 0.0)
        chunks = [(b[i : i + CHUNK], c[i : i + CHUNK]) for i in range(0, length, CHUNK)]
        states = before([x.mT @ y for x, y in chunks])
        sizes = before([x.abs().mT @ y.abs() for x, y in chunks])

        def with_states(x: Tensor, states: Tensor) -> Tensor:
            return (x[:, None, :] @ states[first])[:, 0]

        o = own @ c + with_states(a, states)
        rounded = own.abs() @ c.abs() + with_states(a.abs(), states.abs()) + o.abs()
        total = own.abs() @ c.abs() + with_states(a.abs(), sizes)
        yield head, o, 1.01 * BF16 * rounded + (length + width) * SUM * total


def before(matrices: list[Tensor]) -> Tensor:
    """The sums of all matrices before each one."""
    stacked = torch.stack(matrices)
    return stacked.cumsum(0) - stacked


def gemm(tensors: tuple[Tensor, ...], kernels: dict[str, Kernel]) -> Case:
    """a bᵀ, beside cuBLAS."""
    (m, k), (n, _) = (t.shape for t in tensors)
    return Case(
        f"product a bᵀ of [{m}, {k}] and [{n}, {k}]",
        tensors,
        kernels,
        {"cuBLAS": torch.nn.functional.linear},
        gemm_reference,
        2.0 * m * n * k,
    )


def gemm_reference(a: Tensor, b: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Some rows after the other: one rounding to bf16, and k additions in float32."""
    right = b.double().mT
    for row in range(0, len(a), 1024):
        rows = slice(row, row + 1024)
        left = a[rows].double()
        product = left @ right
        sizes = left.abs() @ right.abs()
        yield rows, product, 1.01 * BF16 * product.abs() + a.shape[1] * SUM * sizes
