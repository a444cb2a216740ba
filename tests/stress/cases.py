"""What is repeated on a GPU: of each kernel with asynchronous copies, problems that fill its pipes.

Rows begin off 16 bytes where a kernel takes such rows: they are stored element by element, which
fills the memory pipe, and is when loads come late.
"""

import dataclasses
import types
from collections.abc import Sequence

import torch
from torch import Tensor

import thunderkittens
from tests.kernels import attention_cases, cross_entropy_cases, norm_cases, norm_rms_add_cases
from tests.kernels.norm_cases import BF16, FP16, FP32
from thunderkittens.testing import tolerance

ELEMENTS_AT_ONCE = 2**23  # of logits, in float64: a reference is made of some twenty such tensors

Results = Sequence[Tensor | None]
AnyCase = (
    attention_cases.Case | cross_entropy_cases.Case | norm_cases.Case | norm_rms_add_cases.Case
)


@dataclasses.dataclass(frozen=True)
class Stress:
    """One problem of a kernel.

    Attributes:
        kernel: Its name in csrc/kernels.
        case: A case of the tests of its family.
        module: What makes the case's tensors, runs and checks it.
        loss_alone: Of cross_entropy: without a gradient.
    """

    kernel: str
    case: AnyCase
    module: types.ModuleType
    loss_alone: bool = False

    def __str__(self) -> str:
        return f"{self.kernel}-{self.case}{',loss_alone' if self.loss_alone else ''}"

    def make(self, device: str) -> Sequence[Tensor | None]:
        """Its tensors."""
        return self.module.make(self.case, device)

    def run(self, inputs: Sequence[Tensor | None]) -> Results:
        """Its calls, forward and, but for attention, backward."""
        if self.loss_alone:
            logits, targets = inputs
            return [thunderkittens.cross_entropy(logits, targets, **self.case.options)]
        return self.module.run_case(self.case, inputs)

    def check(self, inputs: Sequence[Tensor | None], results: Results) -> None:
        """Asserts the results against float64."""
        if self.module is cross_entropy_cases:
            check_cross_entropy(self.case, *inputs, *results)
        else:
            self.module.check_case(self.case, inputs, results)


def check_cross_entropy(
    case: cross_entropy_cases.Case,
    logits: Tensor,
    targets: Tensor,
    loss: Tensor,
    gradient: Tensor | None = None,
) -> None:
    """As cross_entropy_cases.check, some rows at a time and on the device; of the mean alone."""
    assert case.reduction == "mean", case
    count = int((targets != -100).sum())
    total, bound, size = 0.0, 0.0, 0.0
    wrong = torch.zeros((), dtype=torch.int64, device=logits.device)
    rows = max(1, ELEMENTS_AT_ONCE // case.width)
    for at in range(0, len(logits), rows):
        part = slice(at, at + rows)
        (losses, losses_bound), (want, want_bound) = tolerance.cross_entropy(
            logits[part], targets[part], case.dloss / count, reduction="none"
        )
        total, bound = total + losses.sum(), bound + losses_bound.sum()
        size = size + losses.abs().sum()
        if gradient is not None:
            wrong += (~((gradient[part].double() - want).abs() <= want_bound)).sum()
    assert int(wrong) == 0, f"gradient: {int(wrong)} of {logits.numel()} elements are off"
    bound = (bound + tolerance.accumulation(len(targets)) * size) / count
    error = (loss.double() - total / count).abs()
    assert bool(error <= bound), f"loss: off by {float(error):.3g}, allowed {float(bound):.3g}"


def _cross_entropy() -> list[Stress]:
    """Through the ring: rows that do not fit in registers. Those of issue reports come first."""
    case = cross_entropy_cases.Case
    cases = [
        case(262144, (61,), BF16, "offset", ignored=0),
        case(262144, (61,), FP16, "offset", ignored=0),
        case(131073, (122,), FP32, "offset", ignored=0),
        case(128256, (4096,), BF16, "offset", ignored=0),
        case(50257, (400,), BF16),
        case(50304, (8192,), BF16),
        case(50304, (300,), BF16, "offset", inplace=True, dloss=0.3),
        case(20001, (120,), BF16),  # few rows, whose last block adds up the losses
    ]
    found = [Stress("cross_entropy_stream", each, cross_entropy_cases) for each in cases]
    alone = case(50304, (132,), BF16, "offset")
    return [*found, Stress("cross_entropy_stream", alone, cross_entropy_cases, loss_alone=True)]


def _norms() -> list[Stress]:
    """The backward of long rows; of shorter ones with a residual; and of rows off 16 bytes.

    Some eight rows for each block of an H200: more would take longer to check than to repeat.
    """
    case, other = norm_cases.Case, norm_rms_add_cases.Case
    pipelined = [
        case(2056, (4224,), BF16, BF16, BF16),
        case(8192, (1056,), BF16, BF16, BF16),
        case(4100, (1056,), FP32),
        other("rms_norm", 4096, (2112,), BF16, BF16, BF16),
        other("rms_norm", 5120, (1056,), FP32),
        other("add_layer_norm", 3000, (2113,), FP16, FP16, FP16, p=0.3),
        other("add_layer_norm", 5120, (1055,), FP32),
        other("add_rms_norm", 8192, (1057,), BF16, BF16, BF16),
        other("add_rms_norm", 4104, (1056,), BF16, FP32, FP32, p=0.3),
    ]
    fused = [
        other("add_layer_norm", 2048, (4224,), BF16, BF16, BF16),
        other("add_rms_norm", 1024, (8448,), FP16, FP16, FP16),
        case(4095, (2112,), BF16, BF16, BF16, layout="offset"),
    ]
    return [
        Stress(kernel, each, norm_cases if isinstance(each, case) else norm_rms_add_cases)
        for kernel, some in (("norm_backward_pipelined", pipelined), ("norm_backward", fused))
        for each in some
    ]


def _attention() -> list[Stress]:
    """Each width, mask and option; more tiles than multiprocessors, and a rest in the last ones."""
    case = attention_cases.Case
    whole = {"key_heads": 8, "batch": 3}
    grouped = {"group": 4, "key_heads": 2, "batch": 3}
    packed = {"cu_seqlens_q": (0, 517, 518, 1800, 2999), "cu_seqlens_k": (0, 517, 600, 1700, 3010)}
    cases = [
        case(2047, 2047, **whole),
        case(2047, 2047, causal=True, dtype=FP16, **grouped),
        case(1000, 2050, causal=True, layout="shifted", **grouped),
        case(2047, 2047, layout="packed", softcap=20.0, **whole),
        case(2047, 2047, regime="peaked", scale=1.0, **whole),  # tiles that are done again
        case(2047, 2047, head_dim=80, dtype=FP16, window_left=300, window_right=7, **whole),
        case(2047, 2047, head_dim=128, **whole),
        case(2047, 2047, head_dim=128, causal=True, sinks=FP32, **grouped),
        case(2047, 2047, head_dim=128, causal=True, window_left=200, dtype=FP16, **whole),
        case(3000, 3010, head_dim=128, causal=True, group=2, key_heads=4, **packed),
        case(3000, 3010, head_dim=64, key_heads=8, **packed),
        case(1023, 2047, head_dim=192, **whole),
        case(1023, 2047, head_dim=256, causal=True, **grouped),
        case(1500, 1500, head_dim=256, softcap=20.0, dtype=FP16, **whole),
    ]
    return [Stress("attention_forward", each, attention_cases) for each in cases]


CASES = (*_cross_entropy(), *_norms(), *_attention())
