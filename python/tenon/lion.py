"""Lion (Chen et al. 2023) in place, as one kernel over any number of tensors.

    u = beta1 exp_avg + (1 - beta1) grad
    param = param (1 - lr weight_decay) - lr sign(u)
    exp_avg = beta2 exp_avg + (1 - beta2) grad

Arithmetic is f32 for f32, bf16 and f16 tensors alike, rounded once where it is stored; `1 - beta` and
`1 - lr weight_decay` are computed in double and rounded once. sign(0) is 0: only the decay is applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _arrays, _core
from ._checks import shown, whole
from ._errors import UsageError


def is_tensor(array: Any) -> bool:
    """Whether the array is a PyTorch tensor."""
    return _arrays.library_of(array) == "torch"


class Options(NamedTuple):
    """The engine's options of a step, in its order."""

    lr: Any
    beta1: Any
    beta2: Any
    weight_decay: Any
    maximize: bool
    non_finite: str


def lion_step(
    param: Any,
    exp_avg: Any,
    grad: Any,
    lr: float = 1e-4,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
    eps: float = 0.0,
    *,
    maximize: bool = False,
    non_finite: str = "propagate",
    master: Any = None,
) -> None:
    """One step of one tensor: writes `param` and `exp_avg` (and `master`, an f32 copy of a bf16 or f16 `param`, which
    then takes the step in its place). Arrays must have one shape, one device and no gaps, and share no memory;
    otherwise UsageError names the array, and nothing is written. `eps` is accepted and ignored. `non_finite`:
    "propagate" a NaN or infinity of the gradient, "skip" its elements, or "raise" NumericError before anything is
    written.
    """
    options = Options(lr, beta1, beta2, weight_decay, maximize, non_finite)
    if is_tensor(param):
        from . import _torch

        _torch.lion_step(param, exp_avg, grad, options, eps, master)
        return
    run_lists([param], [exp_avg], [grad], None if master is None else [master], options)


def lion_foreach(
    params: Sequence[Any],
    exp_avgs: Sequence[Any],
    grads: Sequence[Any],
    lr: float = 1e-4,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
    eps: float = 0.0,
    *,
    maximize: bool = False,
    non_finite: str = "propagate",
    masters: Sequence[Any] | None = None,
) -> None:
    """`lion_step` for all tensors of the lists, in one launch per device and set of element types. Everything is
    checked before the first element is written."""
    given = {"params": params, "exp_avgs": exp_avgs, "grads": grads, "masters": masters}
    for name, arrays in given.items():
        if not hasattr(arrays, "__len__") and not (name == "masters" and arrays is None):
            raise TypeError(f"{name}: expected a list of arrays, got {type(arrays).__name__}")
    options = Options(lr, beta1, beta2, weight_decay, maximize, non_finite)
    if len(params) and is_tensor(params[0]):
        from . import _torch

        _torch.lion_foreach(params, exp_avgs, grads, options, eps, masters)
        return
    run_lists(params, exp_avgs, grads, masters, options)


def run_lists(
    params: Sequence[Any],
    exp_avgs: Sequence[Any],
    grads: Sequence[Any],
    masters: Sequence[Any] | None,
    options: Options,
) -> None:
    """The extension's step, for arrays of any library."""
    for arrays, name in ((params, "param"), (exp_avgs, "exp_avg"), (masters or (), "master")):
        if len(arrays) and not is_tensor(arrays[0]):
            for i, array in enumerate(arrays):
                _arrays.check_writable(array, name if len(arrays) == 1 else f"{name}[{i}]")
    *rates, maximize, non_finite = options
    _core.lion_step(params, exp_avgs, grads, masters, (*map(as_float, rates, Options._fields), maximize, non_finite))


def as_float(value: Any, name: str) -> float:
    """The value as a float; UsageError names it otherwise."""
    try:
        return float(value)
    except (OverflowError, RuntimeError, TypeError, ValueError) as e:  # RuntimeError: a tensor of several elements
        raise UsageError(f"{name}: expected a number that a float can hold, got {shown(value)}", name) from e


def explain_lion(dtype: str = "f32", *, master: bool = False, device: str = "cpu") -> str:
    """Describes what runs for tensors of this type: skeleton, expression, bytes per element, and how the device runs
    it."""
    backend, _, ordinal = device.partition(":")
    if ordinal and not ordinal.isdecimal():
        raise UsageError(f"device: expected a name such as cpu or cuda:0, got {device!r}", "device")
    number = whole(int(ordinal or 0), "device", 0)
    return _core.explain_lion(dtype, dtype, dtype, master, backend, number)
