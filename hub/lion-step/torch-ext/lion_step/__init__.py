"""The Lion optimizer's step, in place: `lion_step` for one tensor, `lion_foreach` for lists."""

from collections.abc import Sequence

import torch

from ._ops import add_op_namespace_prefix, ops


@torch.library.register_fake(add_op_namespace_prefix("lion_step"))
def _fake_step(param, exp_avg, grad, lr, beta1, beta2, weight_decay, eps):
    return None


@torch.library.register_fake(add_op_namespace_prefix("lion_foreach"))
def _fake_foreach(params, exp_avgs, grads, lr, beta1, beta2, weight_decay, eps):
    return None


@torch.no_grad()
def lion_step(
    param: torch.Tensor,
    exp_avg: torch.Tensor,
    grad: torch.Tensor,
    lr: float = 1e-4,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
    eps: float = 0.0,
) -> None:
    """One step of one tensor: writes param and exp_avg. eps is accepted and ignored."""
    ops.lion_step(param, exp_avg, grad, lr, beta1, beta2, weight_decay, eps)


@torch.no_grad()
def lion_foreach(
    params: Sequence[torch.Tensor],
    exp_avgs: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    lr: float = 1e-4,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
    eps: float = 0.0,
) -> None:
    """One step of every tensor of the lists, all of one type and device. Empty lists are left alone."""
    lists = (list(params), list(exp_avgs), list(grads))
    if any(lists):  # without a tensor, PyTorch cannot choose a backend
        ops.lion_foreach(*lists, lr, beta1, beta2, weight_decay, eps)


__all__ = ["lion_foreach", "lion_step"]
