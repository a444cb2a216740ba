"""AdamW for all parameters of a model at once."""

import dataclasses
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from thunderkittens.optim._sharded import local, local_gradient, norm_of

_step: Callable[..., None] = torch.ops.thunderkittens.adamw_foreach.default
_MOMENTS = ("exp_avg", "exp_avg_sq")
_HALVES = (torch.float16, torch.bfloat16)


@dataclasses.dataclass
class _Options:
    """What holds for all groups of parameters."""

    max_norm: float | None
    skip_nonfinite: bool
    master_weights: bool
    moment_dtype: torch.dtype
    stochastic_rounding: bool
    seed: int


class AdamW(torch.optim.Optimizer):
    """torch.optim.AdamW with gradient clipping, master weights and stochastic rounding in it.

    A step is one launch for each group of parameters, and one or two more for the norm of the
    gradients if it is wanted; up to 192 parameters of one dtype share a launch. Nothing is read
    back from the device, so a step can be captured in a CUDA graph, after a first one outside,
    which makes the state. With a learning rate that is a tensor on the device, the graph follows
    its changes.

    State, `state_dict` and `load_state_dict` are torch.optim.AdamW's, by the names "step",
    "exp_avg" and "exp_avg_sq", and "master_param" where there are master weights. Either loads what
    the other has saved.

    Args:
        params: As of torch.optim.AdamW: tensors, named ones or groups. Groups may have their own
            lr, betas, eps, weight_decay and maximize.
        lr: The learning rate: a number, or a tensor of one element. One on the CPU is read by the
            host at each step.
        betas: β1 and β2, of the running means of the gradient and its square.
        eps: Added to the square root.
        weight_decay: Decoupled: p loses lr · weight_decay · p.
        maximize: Goes up the gradient.
        max_norm: As of torch.nn.utils.clip_grad_norm_, of the gradients of all parameters together,
            which stay what they are: the factor min(1, max_norm / (norm + 10⁻⁶)) acts inside the
            update. None: no clipping.
        skip_nonfinite: A step whose gradients have an infinity or a NaN changes nothing but
            `skipped_steps`.
        master_weights: bfloat16 and float16 parameters get a float32 copy, which is what is
            trained; the parameter is its rounding.
        moment_dtype: Of exp_avg and exp_avg_sq: torch.float32 or torch.bfloat16. float64 parameters
            have their own.
        stochastic_rounding: What is bfloat16 among the moments, and among parameters without master
            weights, is rounded at random, so that it is right on average. No float16 then.
        seed: Of those random numbers, which follow from it, the parameter's step, its place in the
            optimizer and the element. The same on all ranks under DDP.

    Attributes:
        grad_norm: A tensor of the device: the norm of the last step's gradients, before clipping;
            None where neither max_norm nor skip_nonfinite wants it.
        skipped_steps: How many steps were skipped, an int32 tensor of the device; None before the
            first step with skip_nonfinite.

    Raises:
        ValueError: An argument, or the state that is loaded, is not as above.

    DTensor:
        Of parameters that are DTensors, as FSDP2 and tensor parallelism make them, each rank
        updates its shards in the same launches, and the squared norm is all-reduced over the
        meshes' dimensions that shard them. Gradients that are placed otherwise are redistributed.

    Numerics:
        Those of `thunderkittens.adamw`. The norm is a sum of squares in float32, in an order that
        depends on the sizes alone. Same bits on every run.

    Source:
        csrc/kernels/adamw. Torch computes what is on the CPU, with the same random numbers.

    Example:
        >>> import torch, thunderkittens
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = thunderkittens.optim.AdamW(model.parameters(), lr=1e-3, max_norm=1.0)
        >>> model(torch.ones(4, 2)).square().sum().backward()
        >>> optimizer.step()
        >>> optimizer.grad_norm.shape
        torch.Size([])
    """

    grad_norm: Tensor | None = None
    skipped_steps: Tensor | None = None

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
        max_norm: float | None = None,
        skip_nonfinite: bool = False,
        master_weights: bool = False,
        moment_dtype: torch.dtype = torch.float32,
        stochastic_rounding: bool = False,
        seed: int = 0,
    ) -> None:
        if moment_dtype not in (torch.float32, torch.bfloat16):
            _refuse("moment_dtype must be torch.float32 or torch.bfloat16", moment_dtype)
        if max_norm is not None and not max_norm >= 0:
            _refuse("max_norm must be at least 0, or None", max_norm)
        self._options = _Options(
            max_norm, skip_nonfinite, master_weights, moment_dtype, stochastic_rounding, seed
        )
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, with hyperparameters of their own.

        Args:
            param_group: "params", and what differs from the optimizer's.

        Raises:
            ValueError: A hyperparameter is not as the class says, or a parameter cannot be trained.
        """
        super().add_param_group(param_group)
        self._suit_torch(self.param_groups[-1])
        try:
            self._check_group(self.param_groups[-1])
        except ValueError:
            self.param_groups.pop()
            raise

    @staticmethod
    def _suit_torch(group: dict[str, Any]) -> None:
        """Says what torch.optim.AdamW does with tensors of steps on the parameters' device."""
        group["capturable"] = all(p.is_cuda for p in group["params"])

    def _check_group(self, group: dict[str, Any]) -> None:
        lr = group["lr"]
        if isinstance(lr, Tensor):
            if lr.numel() != 1:
                _refuse("lr must have one element", f"shape {list(lr.shape)}")
        elif not lr >= 0:
            _refuse("lr must be at least 0", lr)
        for name in ("eps", "weight_decay"):
            if not group[name] >= 0:
                _refuse(f"{name} must be at least 0", group[name])
        if len(group["betas"]) != 2 or not all(0 <= beta < 1 for beta in group["betas"]):
            _refuse("betas must be two numbers of at least 0 and below 1", group["betas"])
        for p in group["params"]:
            if p.dtype not in (torch.float32, torch.float64, *_HALVES):
                _refuse("parameters must be float32, float16, bfloat16 or float64", p.dtype)
            bare = not self._options.master_weights
            if self._options.stochastic_rounding and p.dtype == torch.float16 and bare:
                _refuse("stochastic_rounding takes bfloat16 parameters, or master_weights", p.dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_options": self._options}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes one step.

        Args:
            closure: Evaluates the model again, with gradients, and returns the loss.

        Returns:
            What the closure returned; None without one.

        Raises:
            ValueError: Gradients of several devices are to have one norm, or the gradient of a
                DTensor is a plain tensor.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        number = 0
        trained: list[tuple[dict[str, Any], list[_Trained]]] = []
        for group in self.param_groups:
            numbered = enumerate(group["params"], number)
            params = [_Trained(i, p, local_gradient(p)) for i, p in numbered if p.grad is not None]
            trained.append((group, params))
            number += len(group["params"])
        self._find_norm([t for _, params in trained for t in params])
        counted = self.skipped_steps
        for group, params in trained:
            for alike in _by_device_and_master(params, self._masters):
                self._update(group, alike, counted)
                counted = None
        return loss

    def _masters(self, p: Tensor) -> bool:
        return self._options.master_weights and p.dtype in _HALVES

    def _find_norm(self, params: "list[_Trained]") -> None:
        """Sets grad_norm, if the step needs it, and makes the counter of skipped steps."""
        options = self._options
        if not params or (options.max_norm is None and not options.skip_nonfinite):
            return
        devices = {t.param.device for t in params}
        if len(devices) > 1:
            names = ", ".join(sorted(map(str, devices)))
            _refuse("gradients that are clipped or skipped must be on one device", names)
        self.grad_norm = norm_of([t.param for t in params], [t.grad for t in params])
        if options.skip_nonfinite and self.skipped_steps is None:
            self.skipped_steps = torch.zeros((), dtype=torch.int32, device=params[0].param.device)

    def _update(
        self, group: dict[str, Any], params: "list[_Trained]", counted: Tensor | None
    ) -> None:
        """Updates parameters of one group and device, all with master weights or all without."""
        options, lr = self._options, group["lr"]
        on_device = isinstance(lr, Tensor) and lr.device.type != "cpu"
        states = [self._state_of(t.param) for t in params]
        has_masters = self._masters(params[0].param)
        first = params[0].param.device
        _step(
            [t.grad for t in params],
            [local(t.param) for t in params],
            *([local(s[name]) for s in states] for name in _MOMENTS),
            [local(s["master_param"]) for s in states] if has_masters else [],
            [s["step"] for s in states],
            lr.to(first) if on_device else None,
            self.grad_norm,
            counted,
            [t.number for t in params],
            lr=0.0 if on_device else float(lr),
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            maximize=group["maximize"],
            max_norm=options.max_norm,
            skip_nonfinite=options.skip_nonfinite,
            stochastic_rounding=options.stochastic_rounding,
            seed=options.seed,
        )

    def _state_of(self, p: Tensor) -> dict[str, Tensor]:
        """The parameter's state, made at its first step."""
        state: dict[str, Tensor] = self.state[p]
        if not state:
            dtype = p.dtype if p.dtype == torch.float64 else self._options.moment_dtype
            state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
            for name in _MOMENTS:
                state[name] = torch.zeros_like(p, dtype=dtype)
            if self._masters(p):
                state["master_param"] = p.detach().to(torch.float32)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what this class or torch.optim.AdamW has saved.

        Moments take the dtype of this optimizer; master weights that are not there are made from
        the parameters, which are to be loaded before.

        Args:
            state_dict: As `state_dict` gives it.

        Raises:
            ValueError: The groups do not fit, or were trained with amsgrad.
        """
        if any(group.get("amsgrad") for group in state_dict["param_groups"]):
            _refuse("the state must be of training without amsgrad", "amsgrad=True")
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            self._suit_torch(group)
            group.setdefault("maximize", False)
            self._check_group(group)
        # Torch has cast the state to the parameters' dtype: it is taken as it was saved.
        saved = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        params = chain.from_iterable(group["params"] for group in self.param_groups)
        for key, p in zip(saved, params, strict=True):
            if key in state_dict["state"]:
                given = state_dict["state"][key]
                self.state.pop(p, None)
                state = self._state_of(p)
                for name in state:
                    if name in given:
                        state[name].copy_(torch.as_tensor(given[name]))


@dataclasses.dataclass
class _Trained:
    """A parameter of this step: its place in the optimizer, and the gradient of its shard here."""

    number: int
    param: Tensor
    grad: Tensor


def _by_device_and_master(
    params: list[_Trained], has_master: Callable[[Tensor], bool]
) -> Iterable[list[_Trained]]:
    """What one call takes."""
    found: dict[tuple[torch.device, bool], list[_Trained]] = {}
    for t in params:
        found.setdefault((t.param.device, has_master(t.param)), []).append(t)
    return found.values()


def _refuse(expected: str, got: object) -> None:
    raise ValueError(f"AdamW: {expected}, got {got}")
