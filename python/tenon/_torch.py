"""PyTorch's operators `tenon::lion_step` and `tenon::lion_foreach`: schemas that say what they write, fake
implementations for the compiler, and the real ones for CPU and CUDA tensors on the current stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch

from . import _core

_increment_version = torch.autograd.graph.increment_version  # autograd sees that they were written to
_OPTIONS = (
    "float lr, float beta1, float beta2, float weight_decay, float eps=0.0, bool maximize=False, "
    'str non_finite="propagate"'
)
_library = torch.library.Library("tenon", "DEF")
_library.define(
    "lion_step(Tensor(a!) param, Tensor(b!) exp_avg, Tensor grad, " + _OPTIONS + ", Tensor(c!)? master=None) -> ()"
)
_library.define(
    "lion_foreach(Tensor(a!)[] params, Tensor(b!)[] exp_avgs, Tensor[] grads, "
    + _OPTIONS
    + ", Tensor(c!)[]? masters=None) -> ()"
)


def _step(
    param: Any,
    exp_avg: Any,
    grad: Any,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float = 0.0,
    maximize: bool = False,
    non_finite: str = "propagate",
    master: Optional[Any] = None,
) -> None:
    masters = None if master is None else [master]
    _core.lion_step([param], [exp_avg], [grad], masters, lr, beta1, beta2, weight_decay, maximize, non_finite)
    _increment_version([param, exp_avg, *(masters or ())])


def _foreach(
    params: Sequence[Any],
    exp_avgs: Sequence[Any],
    grads: Sequence[Any],
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float = 0.0,
    maximize: bool = False,
    non_finite: str = "propagate",
    masters: Optional[Sequence[Any]] = None,
) -> None:
    _core.lion_step(
        params, exp_avgs, grads, masters or None, lr, beta1, beta2, weight_decay, maximize, non_finite
    )
    _increment_version([*params, *exp_avgs, *(masters or ())])


for _key in ("CPU", "CUDA"):
    _library.impl("lion_step", _step, _key)
    _library.impl("lion_foreach", _foreach, _key)


@torch.library.register_fake("tenon::lion_step")
def _fake_step(*args: Any, **kwargs: Any) -> None:
    return None


@torch.library.register_fake("tenon::lion_foreach")
def _fake_foreach(*args: Any, **kwargs: Any) -> None:
    return None


def _number(lr: Any) -> float:
    return float(lr) if not isinstance(lr, float) else lr


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _direct(tensor: Any) -> bool:
    """Whether PyTorch's dispatcher would do nothing but call us: no compiler, no subclass, no mode that looks on."""
    return (
        type(tensor) in _PLAIN and not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() == 0
    )


def lion_step(
    param: Any, exp_avg: Any, grad: Any, lr: Any, beta1: float, beta2: float, weight_decay: float, eps: float,
    maximize: bool, non_finite: str, master: Any,
) -> None:  # fmt: skip
    """tenon.lion_step on tensors. Parameters that need gradients are written as under torch.no_grad()."""
    lr = _number(lr)
    if _direct(param):
        _step(param, exp_avg, grad, lr, beta1, beta2, weight_decay, eps, maximize, non_finite, master)
        return
    with torch.no_grad():
        torch.ops.tenon.lion_step(
            param, exp_avg, grad, lr, beta1, beta2, weight_decay, eps, maximize, non_finite, master
        )


def lion_foreach(
    params: Sequence[Any], exp_avgs: Sequence[Any], grads: Sequence[Any], lr: Any, beta1: float, beta2: float,
    weight_decay: float, eps: float, maximize: bool, non_finite: str, masters: Sequence[Any] | None,
) -> None:  # fmt: skip
    """tenon.lion_foreach on tensors."""
    lr = _number(lr)
    if _direct(params[0]):
        _foreach(params, exp_avgs, grads, lr, beta1, beta2, weight_decay, eps, maximize, non_finite, masters)
        return
    with torch.no_grad():
        torch.ops.tenon.lion_foreach(
            list(params), list(exp_avgs), list(grads), lr, beta1, beta2, weight_decay, eps, maximize,
            non_finite, list(masters) if masters else None,
        )  # fmt: skip
