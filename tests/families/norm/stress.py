"""What is repeated on a GPU of the norms: kernels whose rows arrive by asynchronous copies."""

from tests.families.norm import cases, rms_add_cases
from tests.families.norm.cases import BF16, FP16, FP32
from tests.stress.problem import Stress


def problems() -> list[Stress]:
    """The backward of pipelined rows; of others with a residual; and of rows off 16 bytes.

    Some eight rows for each block of an H200: more would take longer to check than to repeat.
    """
    case, other = cases.Case, rms_add_cases.Case
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
    medium = [
        case(768, (16897,), BF16, BF16, BF16),
        other("add_layer_norm", 1096, (8448,), FP16, FP16, FP16, p=0.3),
        other("add_rms_norm", 640, (16897,), BF16, BF16, BF16),
    ]
    kernels = (
        ("norm_backward_pipelined", pipelined),
        ("norm_backward_medium", medium),
        ("norm_backward", fused),
    )
    return [
        Stress(kernel, each, cases if isinstance(each, case) else rms_add_cases)
        for kernel, some in kernels
        for each in some
    ]


CASES = tuple(problems())
