"""What every kernel of attention's forward is judged by, under the backend in force."""

from tests.families.attention import cases, guarded
from tests.families.attention.cases import Case
from thunderkittens import _C


def launches(entry: str = "attention_forward") -> int:
    """How often a kernel has been launched."""
    return _C.launch_counts()[entry]


def check_numbers(case: Case, device: str) -> None:
    """Right, within its tensors, whatever lies beside them, and by our kernel."""
    tensors = cases.make(case, device)
    before = launches()
    results = guarded.run(lambda *t: cases.forward(case, *t), *tensors)
    assert launches() == before + guarded.runs()
    cases.Reference(case, *tensors).check(*results)


def check_any(case: Case, device: str, *, gradients: bool = True) -> None:
    """The kernel computes what `explain` says it takes, torch the rest; all of it is right."""
    tensors = cases.make(case, device)
    taken, before = cases.kernel_takes(case, *tensors), launches()
    results = guarded.run(lambda *t: cases.forward(case, *t), *tensors)
    if gradients:
        cases.check_gradients(case, device, with_lse=True)
    assert launches() == before + (guarded.runs() + gradients) * taken
    cases.Reference(case, *tensors).check(*results)
