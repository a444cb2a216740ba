"""What is repeated on a GPU of attention."""

import dataclasses

from tests.families.attention import cases, gradient_cases
from tests.families.attention.cases import FP16, FP32
from tests.stress.problem import Stress


@dataclasses.dataclass(frozen=True)
class Problem(Stress):
    """One of attention's."""

    def small(self) -> Stress:
        """The same with few rows and keys, for a CPU."""
        few = {"rows": 40, "keys": 40, "batch": 1}
        if self.case.packed:
            few |= {"cu_seqlens_q": (0, 5, 40), "cu_seqlens_k": (0, 8, 40)}
        return dataclasses.replace(self, case=dataclasses.replace(self.case, **few))


def problems() -> list[Problem]:
    """Each width, mask and option; more tiles than multiprocessors, and a rest in the last ones."""
    case = cases.Case
    whole = {"key_heads": 8, "batch": 3}
    grouped = {"group": 4, "key_heads": 2, "batch": 3}
    packed = {"cu_seqlens_q": (0, 517, 518, 1800, 2999), "cu_seqlens_k": (0, 517, 600, 1700, 3010)}
    some = [
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
        case(2047, 1023, head_dim=72, causal=True, **grouped),
        case(1023, 2047, head_dim=192, **whole),
        case(1023, 2047, head_dim=192, value_dim=128, causal=True, **grouped),
        case(1023, 2047, head_dim=256, causal=True, **grouped),
        case(1500, 1500, head_dim=256, softcap=20.0, dtype=FP16, **whole),
    ]
    generic = [
        case(2047, 2047, generic=True, **whole),
        case(2047, 2047, head_dim=96, causal=True, dtype=FP16, generic=True, **grouped),
        case(3000, 3010, head_dim=128, causal=True, group=2, key_heads=4, generic=True, **packed),
        case(1023, 2047, head_dim=256, window_left=300, generic=True, **whole),
    ]
    wide = {"key_heads": 4, "batch": 2}
    gradients = [
        case(1023, 1023, **whole),
        case(1023, 1500, causal=True, dtype=FP16, **grouped),
        case(1500, 1023, head_dim=80, window_left=300, window_right=7, **wide),
        case(1023, 1500, head_dim=96, dtype=FP16, **wide),
        case(1023, 1023, head_dim=128, **wide),
        case(1023, 1023, head_dim=128, causal=True, sinks=FP32, **grouped),
        case(300, 2047, head_dim=128, causal=True, dtype=FP16, layout="shifted", **wide),
    ]
    of_few_keys = [
        case(384, 384, **whole),
        case(300, 333, causal=True, dtype=FP16, sinks=FP32, **grouped),
        case(511, 640, head_dim=128, **wide),
        case(511, 511, head_dim=96, causal=True, dtype=FP16, **grouped),
    ]
    wide_gradients = [
        case(500, 700, head_dim=256, causal=True, **wide),
        case(1023, 1023, head_dim=192, dtype=FP16, window_left=300, **wide),
        case(700, 1023, head_dim=192, value_dim=128, causal=True, **wide),
    ]
    of_generic = [
        *(dataclasses.replace(each, generic=True) for each in gradients),
        case(500, 700, head_dim=256, causal=True, generic=True, **wide),
    ]
    return [
        *(Problem("attention_forward", each, cases) for each in some),
        *(Problem("attention_generic", each, cases) for each in generic),
        *(Problem("attention_backward", each, gradient_cases) for each in gradients),
        *(
            Problem("attention_backward_dq", each, gradient_cases)
            for each in [*of_few_keys, *wide_gradients]
        ),
        *(Problem("attention_backward_generic", each, gradient_cases) for each in of_generic),
    ]


CASES = tuple(problems())
