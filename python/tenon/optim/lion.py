"""Lion as a PyTorch optimizer: one launch for all parameters of a group with the same device and element types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Optional

import torch

from .. import _checks, _torch
from .._errors import NumericError, UsageError

_NON_FINITE = ("propagate", "skip", "raise")


def _number(value: Any) -> float:
    """The value as a float; NaN, which every check refuses, if it is not a single number."""
    try:
        return float(value)
    except (OverflowError, RuntimeError, TypeError, ValueError):
        return float("nan")


def _are_betas(values: Any) -> bool:
    values = _checks.pair(values)
    return isinstance(values, (tuple, list)) and len(values) == 2 and all(0.0 <= _number(b) < 1.0 for b in values)


def _check(name: str, value: Any, good: bool, expected: str) -> None:
    if not good:
        raise UsageError(f"{name}: expected {expected}, got {value!r}", name)


def _check_options(group: dict[str, Any], where: str = "") -> None:
    lr, weight_decay, non_finite = group["lr"], group["weight_decay"], group["non_finite"]
    _check(f"{where}lr", lr, 0.0 <= _number(lr) < float("inf"), "a finite number of at least 0")
    _check(f"{where}betas", group["betas"], _are_betas(group["betas"]), "two numbers in [0, 1)")
    _check(f"{where}weight_decay", weight_decay, _number(weight_decay) >= 0.0, "a number of at least 0")
    _check(f"{where}non_finite", non_finite, non_finite in _NON_FINITE, f"one of {', '.join(_NON_FINITE)}")
    _check(
        f"{where}non_finite",
        non_finite,
        not (group["capturable"] and non_finite == "raise"),
        '"propagate" or "skip" in a capturable optimizer',
    )


def _version(tensor: Any) -> Optional[int]:
    """Changes with every write that PyTorch knows of; None where it counts none."""
    return None if tensor.is_inference() else tensor._version


def _refuse_non_finite(grads: list[Any]) -> None:
    for i, finite in enumerate(torch.stack([torch.isfinite(g).all().cpu() for g in grads]).tolist()):
        if not finite:
            raise NumericError(f"grad[{i}]: is not finite; nothing was written", f"grad[{i}]")


class Lion(torch.optim.Optimizer):
    """Lion with decoupled weight decay (Chen et al. 2023).

    params: tensors, dicts of groups, or named parameters, as in all of torch.optim.
    lr: learning rate, typically a third to a tenth of AdamW's, a number or a tensor of one element (which can change
        without recompiling under torch.compile; one on a GPU makes every step wait for it).
    betas: (beta1, beta2) in [0, 1).
    weight_decay: decoupled; typically three to ten times AdamW's.
    eps: accepted for compatibility, and ignored.
    maximize: steps along the gradient instead of against it.
    foreach: False steps one tensor at a time; True and None take each group's tensors in one launch.
    capturable: steps may be captured in a CUDA graph. Learning rate and betas are then fixed at capture, and
        non_finite="raise", which waits for the device, is refused.
    master_weights: bf16 and f16 parameters keep an f32 copy that takes the steps; without it a step smaller than half
        the distance between neighbouring values is lost. Where something else changed a parameter (a module's
        load_state_dict; not through `.data`), the copy follows it at the next step.
    non_finite: effect of a NaN or an infinity in a gradient: "propagate", "skip" (leaves its elements unchanged), or
        "raise" (NumericError names the tensor, nothing is written; needs another pass over the gradients).
    fused, differentiable: features of torch.optim's own optimizers; refused unless left at None and False.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-4,
        betas: Sequence[float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        eps: float = 0.0,
        maximize: bool = False,
        foreach: Optional[bool] = None,
        capturable: bool = False,
        master_weights: bool = False,
        non_finite: str = "propagate",
        differentiable: bool = False,
        fused: Optional[bool] = None,
    ) -> None:
        _check("fused", fused, not fused, "None or False: every step is one launch already (see foreach)")
        _check("differentiable", differentiable, not differentiable, "False: no gradient flows through a step")
        betas = _checks.pair(betas)
        defaults = dict(
            lr=lr,
            betas=betas,
            weight_decay=weight_decay,
            eps=eps,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            master_weights=master_weights,
            non_finite=non_finite,
        )
        _check_options(defaults)
        self._seen: dict[Any, Optional[int]] = {}
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._seen = {}  # versions of parameters with masters after their last step
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch.optim, except that the f32 copies of parameters stay f32."""
        super().load_state_dict(state_dict)
        saved = [p for group in state_dict["param_groups"] for p in group["params"]]
        ours = [p for group in self.param_groups for p in group["params"]]
        for key, param in zip(saved, ours):
            kept = state_dict["state"].get(key, {}).get("master")
            if kept is not None:  # torch.optim rounded it to the parameter's type
                self.state[param]["master"] = kept.detach().to(device=param.device, dtype=torch.float32, copy=True)

    def _state_of(self, param: Any, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[param]
        if len(state) == 0:
            state["exp_avg"] = torch.zeros_like(param, memory_format=torch.preserve_format)
        self._follow_layout(param, state)
        if group["master_weights"] and param.dtype != torch.float32 and "master" not in state:
            state["master"] = param.detach().to(torch.float32, memory_format=torch.preserve_format, copy=True)
        if "master" in state and _torch.eager() and self._seen.get(param) != _version(param):
            self._follow_parameter(param, state["master"])
        return state

    @staticmethod
    def _follow_parameter(param: Any, master: Any) -> None:
        """Where others changed the parameter, as a module's load_state_dict does, its copy must not undo that."""
        same = master.to(param.dtype) == param
        master.copy_(torch.where(same, master, param.to(torch.float32)))

    @staticmethod
    def _follow_layout(param: Any, state: dict[str, Any]) -> None:
        """Elements must be in the parameter's order, which `to(memory_format=..)` and a loaded state change."""
        for name, kept in state.items():
            if kept.stride() != param.stride():
                state[name] = torch.empty_like(param, dtype=kept.dtype).copy_(kept)

    @staticmethod
    def _grad_of(param: Any) -> Any:
        grad = param.grad
        if grad.is_sparse:
            raise UsageError("grad: expected a dense gradient, got a sparse one", "grad")
        if grad.stride() != param.stride():  # elements must be in the parameter's order
            grad = torch.empty_like(param).copy_(grad)
        return grad

    def _collect(self, group: dict[str, Any]) -> Iterable[tuple[list[Any], list[Any], list[Any], list[Any]]]:
        plain: tuple[list[Any], ...] = ([], [], [], [])
        with_master: tuple[list[Any], ...] = ([], [], [], [])
        for param in group["params"]:
            if param.grad is None:
                continue
            state = self._state_of(param, group)
            lists = with_master if "master" in state else plain
            lists[0].append(param)
            lists[1].append(state["exp_avg"])
            lists[2].append(self._grad_of(param))
            if "master" in state:
                lists[3].append(state["master"])
        return [lists for lists in (plain, with_master) if lists[0]]  # type: ignore[misc]

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One step of every parameter that has a gradient. Returns the result of `closure`, which is called first.
        UsageError names a group whose options the constructor would refuse; nothing is written then."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if _torch.eager():  # a compiler would make every value a constant
            for i, group in enumerate(self.param_groups):
                _check_options(group, f"param_groups[{i}].")
        launches = [(group, lists) for group in self.param_groups for lists in self._collect(group)]
        apart = len(launches) > 1 or any(group["foreach"] is False for group, _ in launches)
        if apart:  # a single launch looks before it writes
            for group, (_, _, grads, _) in launches:
                if group["non_finite"] == "raise":
                    _refuse_non_finite(grads)
        for group, (params, exp_avgs, grads, masters) in launches:
            beta1, beta2 = group["betas"]
            seen = apart and group["non_finite"] == "raise"
            options = (group["lr"], beta1, beta2, group["weight_decay"], group["eps"], group["maximize"],
                       "propagate" if seen else group["non_finite"])  # fmt: skip
            if group["foreach"] is not False:
                _torch.lion_foreach(params, exp_avgs, grads, *options, masters)
            else:
                for i, param in enumerate(params):
                    _torch.lion_step(param, exp_avgs[i], grads[i], *options, masters[i] if masters else None)
            if masters and _torch.eager():
                self._seen.update((param, _version(param)) for param in params)
        return loss
