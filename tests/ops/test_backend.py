"""The choice of backend: thread-local, restored, never silent when it falls back."""

import subprocess
import sys
import threading
import time
import warnings

import pytest
import torch

import thunderkittens
from thunderkittens import _C, _backend


def active() -> str:
    return _C.backend().name


def test_context_nests_and_restores():
    assert active() == "auto"
    with thunderkittens.backend("torch"):
        assert active() == "torch"
        with thunderkittens.backend("auto"):
            assert active() == "auto"
        assert active() == "torch"
    assert active() == "auto"


def test_the_generic_kernel_is_a_part_of_the_choice():
    with thunderkittens.backend("auto", kernel="generic"):
        assert active() == "auto_generic"
        with thunderkittens.backend("auto"):
            assert active() == "auto"
        assert active() == "auto_generic"
    assert active() == "auto"


def test_context_restores_after_an_error():
    with pytest.raises(ZeroDivisionError), thunderkittens.backend("torch"):
        raise ZeroDivisionError
    assert active() == "auto"


def test_one_context_object_can_be_entered_twice():
    scope = thunderkittens.backend("torch")
    with scope, scope:
        assert active() == "torch"
    assert active() == "auto"


def test_decorator():
    @thunderkittens.backend("torch")
    def call():
        return active()

    assert (call(), active()) == ("torch", "auto")


def test_recursive_decorator():
    @thunderkittens.backend("torch")
    def call(depth):
        with thunderkittens.backend("auto"):
            if depth:
                call(depth - 1)
        return active()

    assert (call(2), active()) == ("torch", "auto")


@pytest.mark.parametrize("decorated", [False, True])
def test_one_context_object_in_two_threads(decorated):
    """Each thread gets its own backend back, whichever leaves first."""
    scope = thunderkittens.backend("torch")
    seen, inside, first_left = [], threading.Event(), threading.Event()

    def wait():
        inside.set()
        assert first_left.wait(10)

    def other():
        _C.set_backend(_C.Backend.simulator)
        if decorated:
            scope(wait)()
        else:
            with scope:
                wait()
        seen.append(active())

    thread = threading.Thread(target=other)
    with scope:
        thread.start()
        assert inside.wait(10)
    seen.append(active())
    first_left.set()
    thread.join()
    assert seen == ["auto", "simulator"]


def test_choice_belongs_to_the_thread():
    seen = []
    with thunderkittens.backend("torch"):
        thread = threading.Thread(target=lambda: seen.append(active()))
        thread.start()
        thread.join()
    assert seen == ["auto"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cuda",), "backend: name must be one of 'auto', 'torch', 'simulator', got 'cuda'"),
        (("simulator", {"policy": "slow"}), "backend: policy must be one of eager, lazy, random"),
        ((["auto"],), r"backend: name must be one of .*, got \['auto'\]"),
        ((None,), "backend: name must be one of .*, got None"),
        (("simulator", {"policy": ["eager"]}), r"policy must be one of .*, got \['eager'\]"),
        (("simulator", {"policy": ""}), "policy must be one of .*, got ''"),
        (("simulator", {"threads": 0}), "backend: threads must be an integer from 1 to .*, got 0"),
        (("simulator", {"threads": 2.0}), "backend: threads must be an integer .*, got 2.0"),
        (("simulator", {"threads": True}), "backend: threads must be an integer .*, got True"),
        (("simulator", {"threads": 2**31}), "backend: threads must be .*, got 2147483648"),
        (("simulator", {"policy": "random", "seed": -1}), "seed must be an integer .*, got -1"),
        (("simulator", {"policy": "random", "seed": 2**64}), "seed must be an integer from 0 to"),
        (("simulator", {"policy": "random", "seed": "1"}), "seed must be an integer .*, got '1'"),
        (("simulator", {"policy": "lazy", "seed": 1}), "seed must be None unless policy is 'rando"),
        (("simulator", {"seed": 1}), "seed must be None unless policy is 'random', got 1"),
        (("torch", {"policy": "lazy"}), "policy must be None for 'torch', .*, got 'lazy'"),
        (("auto", {"seed": 1}), "seed must be None for 'auto'"),
        (("auto", {"threads": 1}), "threads must be None for 'auto'"),
        (
            ("simulator", {"trace": "a,b"}),
            "backend: trace must be a path without a comma, got 'a,b'",
        ),
        (("simulator", {"facts": ""}), "backend: facts must be a path without a comma, got ''"),
        (("simulator", {"trace": 3}), "backend: trace must be a path without a comma, got 3"),
        (
            ("simulator", {"trace": "a", "block": -1}),
            "block must be an integer from 0 to .*, got -1",
        ),
        (("simulator", {"block": 2}), "backend: block must be None without trace, got 2"),
        (
            ("torch", {"trace": "a"}),
            "trace must be None for 'torch', being an option of 'simulator'",
        ),
        (("auto", {"facts": "a"}), "facts must be None for 'auto'"),
        (("simulator", {"race": 1}), "race must be True or False, got 1"),
        (
            ("torch", {"race": True}),
            "race must be False for 'torch', being an option of 'simulator'",
        ),
        (("auto", {"kernel": "wgmma"}), "kernel must be None or 'generic', got 'wgmma'"),
        (("simulator", {"kernel": ["generic"]}), r"kernel must be None or .*, got \['generic'\]"),
        (("torch", {"kernel": "generic"}), "kernel must be None for 'torch', got 'generic'"),
        (("simulator_race",), "backend: name must be one of 'auto', 'torch', 'simulator', got"),
    ],
)
def test_bad_options(arguments, message):
    name, options = arguments[0], dict(*arguments[1:])
    with pytest.raises(ValueError, match=message):
        thunderkittens.backend(name, **options)
    assert active() == "auto"


def test_simulator_that_is_not_built(monkeypatch, tmp_path):
    monkeypatch.setattr(_backend, "SIMULATOR", tmp_path / "_simulator.so")
    _backend._simulator.cache_clear()
    with pytest.raises(
        RuntimeError, match="the simulator is not built .*`python -m build_tools simulator`"
    ):
        thunderkittens.backend("simulator").__enter__()
    assert active() == "auto"


def test_simulator_that_is_damaged(monkeypatch, tmp_path):
    (tmp_path / "_simulator.so").write_bytes(b"not ELF")
    monkeypatch.setattr(_backend, "SIMULATOR", tmp_path / "_simulator.so")
    _backend._simulator.cache_clear()
    with pytest.raises(RuntimeError, match="^backend: the simulator cannot be loaded"):
        thunderkittens.backend("simulator").__enter__()
    assert active() == "auto"


def test_cpu_tensors_are_no_fallback(monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thunderkittens.layer_norm(torch.ones(2, 8))
        thunderkittens.layer_norm(torch.ones(2, 8, dtype=torch.float64))


@pytest.fixture
def simulator_choice():
    """The simulator as this thread's backend, whether or not its library is there."""
    _C.set_backend(_C.Backend.simulator)
    _C.forget_warnings()
    yield
    _C.set_backend(_C.Backend.auto)
    _C.forget_warnings()


def test_fallback_warns_once_per_reason(simulator_choice, monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT", raising=False)
    wide = torch.ones(2, 8, dtype=torch.float64)
    with pytest.warns(UserWarning, match="layer_norm: computed by torch: float64 is computed by"):
        want = thunderkittens.layer_norm(wide)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(thunderkittens.layer_norm(wide), want)
    with pytest.warns(UserWarning, match="width 65537 is above 65536"):
        thunderkittens.layer_norm(torch.ones(1, 65537))
    q = torch.ones(1, 2, 1, 8)
    with pytest.warns(UserWarning, match="attention: computed by torch: float32 is computed"):
        thunderkittens.attention(q, q, q)


def test_a_warning_can_be_an_error(simulator_choice):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # each call, until it has been a warning
            with pytest.raises(UserWarning, match="float64 is computed by torch"):
                thunderkittens.layer_norm(torch.ones(2, 8, dtype=torch.float64))
    with pytest.warns(UserWarning, match="float64 is computed by torch"):
        thunderkittens.layer_norm(torch.ones(2, 8, dtype=torch.float64))


@pytest.mark.parametrize(("value", "raises"), [("1", True), ("0", False), ("", False)])
def test_strict(simulator_choice, monkeypatch, value, raises):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", value)
    x = torch.ones(2, 8, dtype=torch.float64)
    if raises:
        with pytest.raises(RuntimeError, match="layer_norm: .*float64.*THUNDERKITTENS_STRICT"):
            thunderkittens.layer_norm(x)
    else:
        with pytest.warns(UserWarning, match="float64"):
            thunderkittens.layer_norm(x)


def test_backward_uses_the_backend_of_its_forward(simulator_choice):
    """The forward falls back under the simulator (float64); so must a backward outside of it."""
    x = torch.randn(2, 8, dtype=torch.float64, requires_grad=True)
    with pytest.warns(UserWarning, match="layer_norm: "):
        y = thunderkittens.layer_norm(x)
    _C.set_backend(_C.Backend.auto)
    with pytest.warns(UserWarning, match="layer_norm_backward: computed by torch: float64"):
        y.sum().backward()
    assert active() == "auto"


def test_the_gil_is_released():
    """While one thread computes, another runs Python."""
    x = torch.randn(4000, 4000)
    counted, done = 0, threading.Event()

    def compute():
        for _ in range(5):
            thunderkittens.layer_norm(x)
        done.set()

    thread = threading.Thread(target=compute)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10.0)  # only a thread that gives the GIL up lets this one run
    try:
        thread.start()
        while not done.is_set():
            counted += 1
            time.sleep(0.0005)
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert counted >= 5


def test_threads_agree():
    x = torch.randn(16, 64)
    want = thunderkittens.layer_norm(x)
    wrong = []

    def work():
        for _ in range(50):
            if not torch.equal(thunderkittens.layer_norm(x), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_import_leaves_cuda_alone():
    code = (
        "import torch, thunderkittens; assert not torch.cuda.is_initialized(); "
        "thunderkittens.layer_norm(torch.ones(2, 4)); assert not torch.cuda.is_initialized()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
